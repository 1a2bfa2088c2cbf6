//go:build crash

package daemon

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/examples/explore"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
	"berth/runtimes/memory"
	"berth/schema"
	"berth/schema/audit"
)

// crashes plays merges against daemons that are killed with SIGKILL, on real Git over smart HTTP. The hosts are simulated: each step
// there is saved before the next one.
type crashes struct {
	*kept
	draw    *rand.Rand
	world   string
	effects *fsnotify.Watcher // of the files of the hosts
	kills   map[string]int    // by moment
	commits []string          // merged
	train   string            // its document; "": deleted
}

// killed starts a daemon, and kills it at a drawn moment: at an effect on the hosts, at a request to the remote, or at any time.
func (c *crashes) killed() {
	c.Helper()
	kind := []string{"effect", "request", "any time"}[c.draw.IntN(3)]
	n, after := 1+c.draw.IntN(4), time.Duration(c.draw.IntN(1500))*time.Millisecond
	for empty := false; !empty; {
		select {
		case <-c.effects.Events:
		default:
			empty = true
		}
	}
	c.git.ResetRequests()
	p := serveProcess(c.T, c.path)
	anyTime := time.After(after)             // the moment of the kill
	late := time.After(2 * time.Second)      // the moment for a daemon that has nothing more to do
	tick := time.NewTicker(time.Millisecond) // the pace of looks at the requests
	defer tick.Stop()
	at := kind
	for seen := 0; ; {
		select {
		case <-c.effects.Events:
			if seen++; kind != "effect" || seen < n {
				continue
			}
		case <-tick.C:
			if kind != "request" || c.git.Requests()["POST git-receive-pack"] < n {
				continue
			}
		case <-anyTime:
			if kind != "any time" {
				continue
			}
		case <-late:
			at = "no " + kind + " any more"
		}
		break
	}
	c.kills[at]++
	c.stopped(p)
}

func (c *crashes) stopped(p *exec.Cmd) {
	c.Helper()
	require.NoError(c, p.Process.Kill())
	_ = p.Wait()
}

// merge merges a drawn change.
func (c *crashes) merge() {
	c.Helper()
	next := labtest.InstanceYAML("train", c.draw.IntN(3))
	switch c.draw.IntN(4) {
	case 0:
		next = ""
	case 1:
		next = strings.Replace(next, "spec:\n", "spec:\n  desired_state: stopped\n", 1)
	}
	if next == c.train {
		return
	}
	change := gittest.Commit{Message: "change", Parent: c.git.Tip("main"), Files: map[string]string{labtest.TrainFile: next}}
	if next == "" {
		change.Files, change.Remove = nil, []string{labtest.TrainFile}
	}
	c.train = next
	c.commits = append(c.commits, c.git.MustCommit(c, "main", change))
}

// converge lets a daemon run until the hosts are as main says.
func (c *crashes) converge() *exec.Cmd {
	c.Helper()
	p := serveProcess(c.T, c.path)
	phase, workers := plan.PhaseRunning, strings.Count(c.train, "count: 1 #")+2*strings.Count(c.train, "count: 2 #")
	if strings.Contains(c.train, "desired_state: stopped") {
		phase = plan.PhaseStopped
	}
	await.True(c.T, "the hosts are as main says", func() bool {
		tree, err := c.status()
		if err != nil {
			return false
		}
		st := tree.Units.Get(labtest.Train)
		if tree.Revision.Commit != c.git.Tip("main") {
			return false
		}
		if c.train == "" {
			return st == nil && !c.exists(labtest.Train)
		}
		isMade := phase != plan.PhaseStopped || c.exists(labtest.Train)
		return st != nil && st.Phase == phase && (!isMade || phase == plan.PhaseStopped || countRunning(st) == 1+workers)
	}, func() any {
		return fmt.Sprint(show(c.tree.Units.Get(labtest.Train)), c.tree.Revision, c.git.Tip("main"))
	})
	return p
}

func (c *crashes) exists(key schema.Key) bool {
	_, err := os.Stat(filepath.Join(c.world, memory.UnitFile(key)))
	return err == nil
}

// check checks what must hold after any crash: each event is there once, each change has one audit record, the chain of the audit
// holds, and no object of the repository is damaged.
func (c *crashes) check() (events, records int) {
	c.Helper()
	repo, err := gitrepo.OpenLocal(c.git.Dir)
	require.NoError(c, err)
	defer repo.Close()
	tip, ids := c.git.Tip(reconciler.BranchStatus), map[string]bool{}
	for e, err := range repo.Events(c.Context(), tip, statusbranch.LogOrder{}) {
		require.NoError(c, err)
		require.False(c, ids[e.Value.EventID], "event %s %s is there twice", e.Value.EventType, e.Value.EventID)
		ids[e.Value.EventID] = true
	}
	tree, err := c.status()
	require.NoError(c, err)
	require.Equal(c, tree.Revision.Sequence, uint64(len(ids)), "the sequence counts the events")
	decided, known := map[string]int{}, map[string]bool{}
	var lines []audit.Line
	for l, err := range repo.Audit(c.Context(), tip, statusbranch.LogOrder{}) {
		require.NoError(c, err)
		require.False(c, known[l.Value.RecordID], "audit record %s %s is there twice", l.Value.Action, l.Value.RecordID)
		known[l.Value.RecordID] = true
		lines = append(lines, audit.Line{Record: l.Value})
		if strings.HasPrefix(l.Value.Action, "document.") && l.Value.Key == labtest.Train {
			decided[l.Value.Commit]++
		}
	}
	for _, commit := range c.commits {
		require.Equal(c, 1, decided[commit], "audit records of the change in %s", commit)
	}
	require.NoError(c, c.git.Fsck())
	return len(ids), len(lines)
}

// Whenever a daemon is killed, the next one completes what it began: no change and no event is lost or doubled.
func TestCrashes(t *testing.T) {
	count, err := strconv.Atoi(cmp.Or(os.Getenv("BERTH_CRASHES"), "900"))
	require.NoError(t, err)
	seed := explore.Seed(t)
	const worlds = 3
	for n := range worlds {
		t.Run(fmt.Sprint("world ", n), func(t *testing.T) {
			t.Parallel()
			listen, err := labtest.FreePort()
			require.NoError(t, err)
			c := &crashes{kept: newKept(t, "north", listen, map[string]any{"forge": nil, "api": nil, "listen": listen,
				"authority": map[string]any{"trust_main": true}, "poll": "100ms", "interval": "200ms"}),
				draw: rand.New(rand.NewPCG(seed, uint64(n))), kills: map[string]int{}}
			c.world = filepath.Join(c.dir, "world")
			require.NoError(t, os.MkdirAll(c.world, 0o700))
			c.effects, err = fsnotify.NewWatcher()
			require.NoError(t, err)
			require.NoError(t, c.effects.Add(c.world))
			defer c.effects.Close()
			c.stopped(c.converge()) // the estate is adopted: from now on each change has an audit record
			for i := range count / worlds {
				for range 1 + c.draw.IntN(2) {
					c.merge()
				}
				c.killed()
				if i%20 == 19 {
					c.stopped(c.converge())
				}
			}
			c.converge()
			events, records := c.check()
			t.Logf("%d crashes (%v), %d merges, %d events, %d audit records: none lost, none doubled", count/worlds, c.kills, len(c.commits),
				events, records)
		})
	}
}
