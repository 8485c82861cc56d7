// SPDX-License-Identifier: BSD-3-Clause
//! A write of 8 bytes and its completion between two ends in one process, over software RDMA.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr;
use std::time::{Duration, Instant};

use rpma::{Access, Conn, Peer, Provider};
use rpma_core::abi::{
    RPMA_F_COMPLETION_ALWAYS, RPMA_MR_USAGE_WRITE_DST, RPMA_MR_USAGE_WRITE_SRC, rpma_conn_event,
};
use rpma_core::config::ProviderChoice;
use rpma_core::conn_cfg;
use rpma_core::conn_req::ConnReq;
use rpma_core::ep::Ep;
use rpma_core::mr::{MrLocal, MrRemote};
use rpma_core::post::{self, At};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

const HOST: &std::ffi::CStr = c"127.0.0.1";

const LEN: usize = 4096;

/// Memory as this crate allocates it, with the file that is needed until it is registered: the provider
/// copies to other memory in another way.
fn sealed() -> (OwnedFd, *mut c_void) {
    let file = memfd_create("cost", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, LEN as u64).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses, replaces none.
    let at = unsafe { mmap(ptr::null_mut(), LEN, access, MapFlags::SHARED, &file, 0) }.unwrap();
    (file, at)
}

/// By the functions behind the C interface.
pub(crate) fn core(run: impl FnOnce(&mut dyn FnMut())) {
    let context = rpma_core::utils::device(ProviderChoice::Soft, HOST).unwrap();
    let ((_from, from), (_to, to)) = (sealed(), sealed());
    // SAFETY: every object is alive until the end of this function, and is dropped in the reverse order. The
    // memory is never unmapped.
    unsafe {
        let peer = rpma_core::peer::Peer::new(context).unwrap();
        let domain = *peer.domain();
        let register = |at, usage: c_int| MrLocal::register(&domain, at, LEN, usage).unwrap();
        let (from, to) = (register(from, RPMA_MR_USAGE_WRITE_SRC), register(to, RPMA_MR_USAGE_WRITE_DST));
        let remote = MrRemote::from_descriptor(&to.descriptor()).unwrap();
        let ep = Ep::listen(domain, HOST, c"0").unwrap();
        let port = std::ffi::CString::new(ep.local_addr().unwrap().port().to_string()).unwrap();
        let request = ConnReq::new(domain, HOST, &port, &conn_cfg::DEFAULT).unwrap();
        let conn = request.connect(None).unwrap();
        let Ok(incoming) = ep.next_conn_req(&conn_cfg::DEFAULT).unwrap() else { panic!("no request") };
        let target = incoming.connect(None).unwrap();
        for conn in [&conn, &target] {
            assert_eq!(conn.next_event().unwrap(), rpma_conn_event::RPMA_CONN_ESTABLISHED);
        }
        run(&mut || {
            let (dst, src) = (At { mr: Some(&*remote), offset: 0 }, At { mr: Some(&*from), offset: 0 });
            post::write(&conn, dst, src, 8, RPMA_F_COMPLETION_ALWAYS, None, ptr::null()).unwrap();
            let mut entry = MaybeUninit::uninit();
            while conn.cq().poll(1, entry.as_mut_ptr()).is_err() {}
            black_box(entry.assume_init());
        });
        drop((conn, target, ep, from, to));
        drop(peer);
    }
}

fn connected() -> (Peer, rpma::Exposed, Conn, Conn) {
    let peer = Peer::open("127.0.0.1:0", Provider::Soft).unwrap();
    let memory = peer.expose(4096, Access::WRITE).unwrap();
    let listener = peer.listen("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (conn, target) = std::thread::scope(|scope| {
        let target = scope.spawn(|| listener.wait_accept().unwrap().wait_accept(&[memory.offer()]).unwrap());
        (peer.connect(addr).wait().unwrap(), target.join().unwrap())
    });
    (peer, memory, conn, target)
}

/// By this crate, on a thread.
pub(crate) fn polled(run: impl FnOnce(&mut dyn FnMut())) {
    let (peer, _memory, conn, _target) = connected();
    let (remote, mut buf) = (conn.remote(0).unwrap().slice(0..8).unwrap(), Some(peer.buf(8).unwrap()));
    run(&mut || buf = Some(conn.write(buf.take().unwrap(), remote).wait().unwrap()));
}

/// `rounds` writes by this crate, awaited under tokio.
pub(crate) fn awaited(run: impl FnOnce(&mut dyn FnMut(u64) -> Duration)) {
    let (peer, _memory, conn, _target) = connected();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let remote = conn.remote(0).unwrap().slice(0..8).unwrap();
    run(&mut |rounds| {
        let mut buf = peer.buf(8).unwrap();
        runtime.block_on(async {
            let began = Instant::now();
            for _ in 0..rounds {
                buf = conn.write(buf, remote).await.unwrap();
            }
            began.elapsed()
        })
    });
}
