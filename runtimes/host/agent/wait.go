package agent

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// waitTCP waits until a port of this host accepts connections. It connects to no other
// host, so it cannot scan a network. It uses sockets directly, as package net would
// double the size of the helper.
func waitTCP(ctx context.Context, etc string, op *runtimes.WaitTCP) (runtimes.Result, error) {
	var res runtimes.Result
	at := strings.LastIndexByte(op.Address, ':')
	if at < 0 {
		return res, invalid("%s is not host:port", plain(op.Address))
	}
	port, err := strconv.ParseUint(op.Address[at+1:], 10, 16)
	if err != nil || port == 0 {
		return res, invalid("%s is not host:port", plain(op.Address))
	}
	addr, err := resolve(etc, strings.Trim(op.Address[:at], "[]"))
	if err != nil {
		return res, err
	}
	timeout := time.Duration(op.TimeoutMS) * time.Millisecond
	if timeout <= 0 || timeout > maxServiceTimeout {
		return res, invalid("the timeout of a wait is at most %s", maxServiceTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := connect(ctx, addr, int(port))
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

// resolve parses an address, or looks up a name in the hosts file.
func resolve(etc, host string) (netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
		return addr.Unmap(), nil
	}
	if host == "localhost" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	name := filepath.Join(etc, "hosts")
	b, err := os.ReadFile(name)
	if err != nil {
		return netip.Addr{}, ioFault(name, err)
	}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		for i := 1; i < len(f); i++ {
			if f[i] == host {
				if addr, err := netip.ParseAddr(f[0]); err == nil {
					return addr.Unmap(), nil
				}
			}
		}
	}
	return netip.Addr{}, refuse("%s is neither an address nor a name in %s", plain(host), name)
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
