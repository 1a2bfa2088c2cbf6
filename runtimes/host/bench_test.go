package host_test

import (
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/runtimes"
)

// BenchmarkRoundTrip measures one call on an open session, eight in parallel, and a
// write with its syncs. The peer is an ssh(1) process for each call.
func BenchmarkRoundTrip(b *testing.B) {
	look := runtimes.Op{Stat: &runtimes.Stat{Paths: []string{base}}}
	overSSH := func(t testing.TB) place {
		l := stand(t, "w1")
		hosts := reach(t, l)
		return place{hosts, hosts.Host(member(t, l, "w1")), base}
	}
	for _, transport := range []struct {
		name string
		make func(testing.TB) place
	}{{"in process", inProcess}, {"subprocess", subprocess}, {"ssh", overSSH}} {
		b.Run(transport.name, func(b *testing.B) {
			p := transport.make(b)
			look.Stat.Paths = []string{p.dir}
			call := func(stamp runtimes.Stamp, op runtimes.Op) error {
				_, err := p.host.Do(b.Context(), stamp, op)
				return err
			}
			require.NoError(b, call(runtimes.Stamp{}, look))
			for b.Loop() {
				const n = 300
				b.ReportMetric(each(b, n, func() error { return call(runtimes.Stamp{}, look) }), "µs/look")
				text := []string{"a", "b"}
				i := 0
				b.ReportMetric(each(b, 50, func() error { i++; return call(stamp(), write(p.dir+"/file", text[i%2])) }), "µs/write")
				begun := time.Now()
				var g errgroup.Group
				for range 8 {
					g.Go(func() error {
						for range n {
							if err := call(runtimes.Stamp{}, look); err != nil {
								return err
							}
						}
						return nil
					})
				}
				require.NoError(b, g.Wait())
				b.ReportMetric(8*n/time.Since(begun).Seconds(), "looks/s-by-8")
			}
		})
	}
	b.Run("peer ssh(1)", func(b *testing.B) {
		l := stand(b, "w1")
		m := member(b, l, "w1")
		var once sync.Once
		for b.Loop() {
			b.ReportMetric(each(b, 10, func() error {
				cmd := exec.Command("ssh", "-F", "none", "-i", l.LoginKeyFile(), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes",
					"-o", "UserKnownHostsFile="+l.KnownHosts(), "root@"+m.Address, "stat", base)
				out, err := cmd.CombinedOutput()
				once.Do(func() { require.NoError(b, err, "%s", out) })
				return err
			}), "µs/look")
		}
	})
}

func each(b *testing.B, n int, do func() error) float64 {
	b.Helper()
	begun := time.Now()
	for range n {
		require.NoError(b, do())
	}
	return float64(time.Since(begun).Microseconds()) / float64(n)
}
