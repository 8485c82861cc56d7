// SPDX-License-Identifier: BSD-3-Clause
// A step for Jenkins pipelines, of a shared library: its body has the program rpma and the software RDMA device soft0. docs/ci.md describes it.
// url: the URL of the binary tarball, sha256: its SHA-256.
def call(Map given, Closure body) {
    withEnv(["RPMA_URL=${given.url}", "RPMA_SHA256=${given.sha256}", "RPMA_DIR=${env.WORKSPACE_TMP}/rpma"]) {
        sh '''set -e
        mkdir -p "$RPMA_DIR"
        curl -fsSL --retry 3 -o "$RPMA_DIR/rpma.tar.xz" "$RPMA_URL"
        echo "$RPMA_SHA256  $RPMA_DIR/rpma.tar.xz" | sha256sum -c -
        tar -xJf "$RPMA_DIR/rpma.tar.xz" -C "$RPMA_DIR" --strip-components=1
        "$RPMA_DIR/bin/rpma" --version
        '''
        withEnv(["PATH+RPMA=${env.WORKSPACE_TMP}/rpma/bin"]) { body() }
    }
}
