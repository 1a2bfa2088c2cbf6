//go:build long

package daemon

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/webhooks/github/githubtest"
)

// Ten thousand deliveries.
func TestLongStormOfDeliveries(t *testing.T) {
	t.Parallel()
	storm(t, 10_000)
}

// A requested rerun of checks is reported by a later daemon if the forge refused the
// report of the one that received the request.
func TestLongRerunsOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	k := newKept(t, "north", listen, map[string]any{"listen": listen, "workers": 2})
	s := attend(k, listen)
	e := s.only()
	head := k.git.MustCommit(t, "change",
		gittest.Commit{Message: "words", Parent: k.git.Tip("main"), Files: map[string]string{"README.md": "x\n"}})
	_, err = k.forge.OpenPull("change", "words", "dora-genomes")
	require.NoError(t, err)
	completed := func() (n int) {
		for _, c := range k.forge.Checks(head) {
			if c.Status == "completed" {
				n++
			}
		}
		return n
	}
	undone := func() bool { return len(e.deliveries.Pending()) > 0 }
	s.eventually("checked", func() bool { return completed() == 2 && !undone() })
	var refused atomic.Int32
	k.forge.SetStorm(func(op string) *githubtest.Fault {
		if strings.Contains(op, "check") {
			refused.Add(1)
			return &githubtest.Fault{Status: 502}
		}
		return nil
	})
	require.NoError(t, k.forge.RerunAll(head, labtest.App))
	s.eventually("they are tried", func() bool { return refused.Load() > 0 })
	require.True(t, undone())
	replace(t, k.path, edited(t, k.path, map[string]any{"workers": 5}))
	s.eventually("another daemon", func() bool { return e.config.Load().Workers == 5 && s.estates.ready() == nil })
	require.True(t, undone())
	k.forge.SetStorm(nil)
	s.eventually("shown again", func() bool { return completed() >= 4 })
	s.eventually("dealt with", func() bool { return !undone() })

	// A rerun for a former head is dropped without a report.
	old := work{Do: reconciler.TaskPull, Pull: 1, Commit: strings.Repeat("0", 40)}
	_, err = e.deliveries.Take("of an old one", []work{old})
	require.NoError(t, err)
	e.wake(old)
	e.running.Load().loop.Enqueue(reconciler.Item{Task: reconciler.TaskPulls})
	s.eventually("let go", func() bool { return !undone() })
}
