package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
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
		return l.bridge().address(ctx, subnet)
	}
	for range 50 {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + rand.IntN(64)), byte(rand.IntN(256)), 0}), 24)
		if _, ok := userOf(subnet, l.Bridge); ok {
			continue
		}
		if err := l.bridge().address(ctx, subnet); err != nil {
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

// bridge connects the hosts of a lab.
type bridge struct{ name string }

func (l *Lab) bridge() bridge { return bridge{l.Bridge} }

// address gives the bridge the address .1 of a subnet.
func (b bridge) address(ctx context.Context, subnet netip.Prefix) error {
	first := subnet.Addr().As4()
	first[3] = 1
	if err := ip(ctx, "address", "add", netip.PrefixFrom(netip.AddrFrom4(first), 24).String(), "dev", b.name); err != nil {
		return err
	}
	return ip(ctx, "link", "set", b.name, "up")
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
func (b bridge) cable(index int) string { return fmt.Sprintf("%sv%d", b.name, index) }

// remove removes the bridge and the links of the hosts.
func (b bridge) remove(ctx context.Context) error {
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
		if name == b.name || strings.HasPrefix(name, b.name+"v") {
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

// link connects a host to the bridge.
func (b bridge) link(ctx context.Context, veth string, n Node, pid int) error {
	add := []string{"link", "add", veth, "type", "veth", "peer", "name", "eth0", "address", mac(n.Address), "netns", strconv.Itoa(pid)}
	if err := ip(ctx, add...); err != nil {
		// The kernel removes the link of a killed host with a delay.
		if !strings.Contains(err.Error(), "File exists") {
			return err
		}
		_ = ip(ctx, "link", "delete", veth)
		if err := ip(ctx, add...); err != nil {
			return err
		}
	}
	return ip(ctx, "link", "set", veth, "master", b.name, "up")
}

// mac returns the hardware address of a host. It stays the same after Boot, as other
// hosts cache it.
func mac(address string) string {
	b := netip.MustParseAddr(address).As4()
	return fmt.Sprintf("02:be:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}
