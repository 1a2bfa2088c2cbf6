package schema

import (
	"net/netip"
	"strings"
)

// IsLoopback reports whether a host of a URL, or an address of a node, is the machine that reads it.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || err != nil && strings.EqualFold(host, "localhost")
}
