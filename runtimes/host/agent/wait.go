package agent

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// waitTCP waits until a port of this host accepts connections. It connects to no other
// host, so it cannot scan a network. It uses sockets directly, as package net would
// double the size of the helper.
func waitTCP(ctx context.Context, op *runtimes.WaitTCP) (runtimes.Result, error) {
	var res runtimes.Result
	addr, err := netip.ParseAddrPort(op.Address)
	if err != nil || addr.Port() == 0 || addr.Addr().Zone() != "" {
		return res, invalid("%s is not an IP address with a port", plain(op.Address))
	}
	timeout := time.Duration(op.TimeoutMS) * time.Millisecond
	if timeout <= 0 || timeout > maxServiceTimeout {
		return res, invalid("the timeout of a wait is at most %s", maxServiceTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := connect(ctx, addr.Addr().Unmap(), int(addr.Port()))
		if err == nil {
			return res, nil
		}
		if err == unix.EADDRNOTAVAIL {
			return res, refuse("%s is not an address of this host", plain(op.Address))
		}
		select {
		case <-ctx.Done():
			return res, &Fault{Code: CodeTimeout, Message: plain(op.Address) + ": " + err.Error() + " for " + timeout.String()}
		case <-time.After(poll):
		}
	}
}

// connect connects to a port of this host from the same address: bind fails with an
// address of another host.
func connect(ctx context.Context, addr netip.Addr, port int) error {
	family := unix.AF_INET
	var from, to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{}}, nil
	if addr.Is4() {
		from, to = &unix.SockaddrInet4{Addr: addr.As4()}, &unix.SockaddrInet4{Addr: addr.As4(), Port: port}
	} else {
		family = unix.AF_INET6
		from, to = &unix.SockaddrInet6{Addr: addr.As16()}, &unix.SockaddrInet6{Addr: addr.As16(), Port: port}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, from); err != nil {
		return err
	}
	// Within a host, connect returns at once unless the listener's queue is full; then
	// the kernel retries for minutes.
	left := time.Second
	if end, ok := ctx.Deadline(); ok {
		left = max(min(left, time.Until(end)), time.Millisecond)
	}
	tv := unix.NsecToTimeval(left.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv); err != nil {
		return err
	}
	return unix.Connect(fd, to)
}
