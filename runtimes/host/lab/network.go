package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strings"
)

// network makes the bridge of the hosts with the address .1 of the subnet.
func (l *Lab) network(ctx context.Context, auto bool) error {
	if err := ip(ctx, "link", "add", l.Bridge, "type", "bridge"); err != nil {
		return err
	}
	if !auto {
		subnet := subnetOf(l.Nodes)
		if user, ok := userOf(subnet, l.Bridge); ok {
			return fmt.Errorf("%s is in use by %s: remove that first, or change the addresses of the nodes", subnet, user)
		}
		return l.address(ctx, subnet)
	}
	for range 50 {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + rand.IntN(64)), byte(rand.IntN(256)), 0}), 24)
		if _, ok := userOf(subnet, l.Bridge); ok {
			continue
		}
		if err := l.address(ctx, subnet); err != nil {
			return err
		}
		if _, ok := userOf(subnet, l.Bridge); ok { // another lab took it at the same time
			if err := ip(ctx, "address", "flush", "dev", l.Bridge); err != nil {
				return err
			}
			continue
		}
		for i := range l.Nodes {
			last := netip.MustParseAddr(l.Nodes[i].Address).As4()[3]
			b := subnet.Addr().As4()
			b[3] = last
			l.Nodes[i].Address = netip.AddrFrom4(b).String()
		}
		return nil
	}
	return fmt.Errorf("no free /24 between 10.64.0.0 and 10.127.255.0")
}

func (l *Lab) address(ctx context.Context, subnet netip.Prefix) error {
	b := subnet.Addr().As4()
	b[3] = 1
	if err := ip(ctx, "address", "add", netip.PrefixFrom(netip.AddrFrom4(b), 24).String(), "dev", l.Bridge); err != nil {
		return err
	}
	return ip(ctx, "link", "set", l.Bridge, "up")
}

func subnetOf(nodes []Node) netip.Prefix {
	p, _ := netip.MustParseAddr(nodes[0].Address).Prefix(24) // checked before
	return p
}

// userOf returns an interface other than mine whose addresses overlap subnet.
func userOf(subnet netip.Prefix, mine string) (string, bool) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return err.Error(), true
	}
	for _, i := range interfaces {
		if i.Name == mine {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue // it was removed
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Overlaps(subnet) {
				return i.Name, true
			}
		}
	}
	return "", false
}

// cable returns the name of a host's link to the bridge.
func (l *Lab) cable(index int) string { return fmt.Sprintf("%sv%d", l.Bridge, index) }

// unlink removes the bridge and the links of the hosts.
func (l *Lab) unlink(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "ip", "-o", "link").Output()
	if err != nil {
		return fmt.Errorf("ip link: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(fields[1], ":"), "@")
		if name == l.Bridge || strings.HasPrefix(name, l.Bridge+"v") {
			// The kernel removes the link of a host that has ended: before ip looks the name up, or between that and
			// the deletion.
			err := ip(ctx, "link", "delete", name)
			if err != nil && !strings.Contains(err.Error(), "Cannot find device") && !strings.Contains(err.Error(), "No such device") {
				return err
			}
		}
	}
	return nil
}
