package edge

import (
	"net"

	"golang.org/x/sys/unix"
)

// refuseNew makes the kernel drop the first packet of new connections, whose clients repeat it after a second and find
// the listener closed. Connections whose handshake is under way are completed: closing the listener would reset them,
// and clients might believe that a request was lost.
func refuseNew(l *net.TCPListener) error {
	const flags, syn, all = 13, 0x02, 0xffffffff // offset in the TCP header; the flag; every byte of a packet
	filter := [...]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	if err == nil {
		err = failed
	}
	return err
}

// hasQueued reports whether a connection waits to be accepted.
func hasQueued(l *net.TCPListener) (queued bool) {
	raw, err := l.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p[:], 0)
		queued = err == nil && n == 1 && p[0].Revents&unix.POLLIN != 0
	})
	return queued && err == nil
}
