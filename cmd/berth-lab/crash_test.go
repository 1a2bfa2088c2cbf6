//go:build long && crash

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/explore"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema/queue"
)

// crashes plays merges of assembly against daemons that are killed with SIGKILL, on real Slurm over real SSH, with real Git. Users
// submit jobs to train meanwhile, which no merge changes.
type crashes struct {
	*scene
	draw     *rand.Rand
	queue    *queueCalls
	submits  chan string          // keys
	jobs     map[string]queue.Job // answered, by key
	waiting  sync.WaitGroup       // for jobs
	effects  <-chan struct{}      // of all hosts
	kills    map[string]int       // by moment
	commits  []string             // merged
	assembly string               // its document; "": deleted
	running  []slurmtest.Job      // of train, since the start
	train    string               // its daemons
}

func newCrashes(t *testing.T, seed uint64) *crashes {
	t.Helper()
	c := &crashes{scene: newSceneOf(t, hosttest.Image(), roomForAssembly), draw: rand.New(rand.NewPCG(seed, 0)), kills: map[string]int{},
		jobs: map[string]queue.Job{}, submits: make(chan string, 1000), queue: &queueCalls{T: t}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's last words:\n%s", lastLines(filepath.Join(c.dir, "berth.log"), 40))
		}
	})
	c.assembly = c.base[labtest.AssemblyFile]
	c.calm()
	for range 2 { // one on each worker
		job, err := c.startJob(t.Context(), labtest.Train, sleeperOfCrashes)
		require.NoError(t, err)
		c.running = append(c.running, job)
	}
	c.saved(labtest.Train, c.running[1].ID)
	var err error
	c.train, err = c.fingerprint(t.Context(), labtest.Train)
	require.NoError(t, err)
	var nodes []string
	for _, n := range c.nodes {
		nodes = append(nodes, n.Name)
	}
	c.effects = c.requests(nodes...)
	c.queue.listen.Store(&c.daemon.listen)
	return c
}

// roomForAssembly lets assembly have two workers.
func roomForAssembly(files map[string]string) {
	const entitlement = "tenants/biology/projects/genomes/entitlements/slurm.yaml"
	files[entitlement] = strings.Replace(files[entitlement], "gpu-a100-4", "gpu-a100-2, gpu-a100-4", 1)
}

// sleeperOfCrashes is a job that outlasts hours of kills.
const sleeperOfCrashes = "#!/bin/sh\nsleep 86000\n"

// submit submits jobs until the keys end. One that no daemon answered is submitted again with its key.
func (c *crashes) submit() {
	for key := range c.submits {
		func() {
			defer c.waiting.Done() // also if the submission fails the test
			c.jobs[key] = c.queue.submitted(key, 0)
		}()
	}
}

// merge merges a drawn change of assembly.
func (c *crashes) merge() {
	c.Helper()
	next := strings.Replace(labtest.InstanceYAML(labtest.Assembly.Name, 1+c.draw.IntN(2)), "      sku: gpu-a100-2\n", "", 1)
	next += fmt.Sprintf("  config:\n    partitions: [{name: main, default: true, max_time_minutes: %d}]\n", 30+c.draw.IntN(3))
	if c.draw.IntN(5) == 0 {
		next = ""
	}
	if next == c.assembly {
		return
	}
	change := gittest.Commit{Message: "change", Files: map[string]string{labtest.AssemblyFile: next}}
	if next == "" {
		change.Files, change.Remove = nil, []string{labtest.AssemblyFile}
	}
	c.assembly = next
	c.commits = append(c.commits, c.push(change))
}

// killAtRandomMoment starts a daemon, and kills it at a drawn moment: at an effect on the hosts, at a push to the remote, or at any time.
func (c *crashes) killAtRandomMoment() {
	c.Helper()
	kind := []string{"effect", "push", "any time"}[c.draw.IntN(3)]
	random := func(most time.Duration) time.Duration { return time.Duration(c.draw.Int64N(int64(most))) }
	n, after, within := 1+c.draw.IntN(6), random(6*time.Second), random(200*time.Millisecond)
	for empty := false; !empty; {
		select {
		case <-c.effects:
		default:
			empty = true
		}
	}
	c.git.ResetRequests()
	d, err := c.launch(c.config)
	require.NoError(c, err)
	c.daemon = d
	c.forge.SetWebhook("http://" + d.listen + "/webhooks/github")
	c.queue.listen.Store(&d.listen)
	anyTime := time.After(after)             // the moment of the kill
	late := time.After(15 * time.Second)     // the moment for a daemon that has nothing more to do
	tick := time.NewTicker(time.Millisecond) // the pace of looks at the requests
	defer tick.Stop()
	at := kind
	for seen := 0; ; {
		select {
		case <-c.effects:
			if seen++; kind != "effect" || seen < n {
				continue
			}
			time.Sleep(within) // the moment within the effect
		case <-tick.C:
			if kind != "push" || c.git.Requests()["POST git-receive-pack"] < n {
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
	d.kill()
	c.daemon = nil
}

// converge lets a daemon run until the hosts are as main says, and checks what must hold after any crash.
func (c *crashes) converge() {
	c.Helper()
	c.serve()
	c.queue.listen.Store(&c.daemon.listen)
	if c.assembly == "" {
		c.eventually("assembly is gone", func() string {
			tree := c.tree()
			if tree.Revision.Commit != c.git.Tip("main") || tree.Units.Get(labtest.Assembly) != nil {
				return show(tree.Units.Get(labtest.Assembly)) + show(tree.Revision)
			}
			return ""
		})
		c.asDeclared(labtest.Train)
	} else {
		c.asDeclared(labtest.Train, labtest.Assembly)
	}
	c.waiting.Wait()
	c.checkTrain()
	c.told()
}

// checkTrain checks that train was left alone, that each submission made one job, and that no job is lost.
func (c *crashes) checkTrain() {
	c.Helper()
	now, err := c.fingerprint(c.Context(), labtest.Train)
	require.NoError(c, err)
	require.Equal(c, c.train, now, "train was touched")
	for _, job := range c.running {
		require.NoError(c, c.stillRunning(c.Context(), labtest.Train, job))
	}
	var list struct{ Items []queue.Job }
	c.eventually("the queue answers", func() string {
		if status := c.queue.do(c.Context(), http.MethodGet, "", nil, &list); status != http.StatusOK {
			return fmt.Sprint(status)
		}
		return ""
	})
	is := map[string]string{}
	for _, j := range list.Items {
		if j.IdempotencyKey == "" {
			continue // of the start
		}
		require.Empty(c, is[j.IdempotencyKey], "%s has two jobs", j.IdempotencyKey)
		is[j.IdempotencyKey] = j.JobID
	}
	want := map[string]string{}
	for key, j := range c.jobs {
		want[key] = j.JobID
	}
	require.Equal(c, want, is, "jobs by key")
}

// checkAudit checks that each change has one audit record, and that no object of the repository is damaged. It returns the number of
// records.
func (c *crashes) checkAudit() (records int) {
	c.Helper()
	decided, known := map[string]int{}, map[string]bool{}
	tip := c.git.Tip(reconciler.BranchStatus)
	c.tree() // fetches it
	for l, err := range c.repo.Audit(c.Context(), tip, statusbranch.LogOrder{}) {
		require.NoError(c, err)
		require.False(c, known[l.Value.RecordID], "audit record %s %s is there twice", l.Value.Action, l.Value.RecordID)
		known[l.Value.RecordID] = true
		if strings.HasPrefix(l.Value.Action, "document.") && l.Value.Key == labtest.Assembly {
			decided[l.Value.Commit]++
		}
	}
	for _, commit := range c.commits {
		require.Equal(c, 1, decided[commit], "audit records of the change in %s", commit)
	}
	require.NoError(c, c.git.Fsck())
	return len(known)
}

// After each kill the next daemon completes on real Slurm what was interrupted: no member, job, change or event is lost or doubled
// (make crash-slurm).
func TestCrashesOnSlurm(t *testing.T) {
	count, err := strconv.Atoi(cmp.Or(os.Getenv("BERTH_CRASHES"), "100"))
	require.NoError(t, err)
	c := newCrashes(t, explore.Seed(t))
	go c.submit()
	c.daemon.kill()
	for i := range count {
		for range 1 + c.draw.IntN(2) {
			c.merge()
		}
		c.waiting.Add(1)
		c.submits <- fmt.Sprintf("key-%d", i)
		c.killAtRandomMoment()
		if i%10 == 9 || i == count-1 {
			c.converge()
			t.Logf("%d crashes %v: as declared", i+1, c.kills)
			if i < count-1 {
				c.daemon.kill()
			}
		}
	}
	close(c.submits)
	records := c.checkAudit()
	t.Logf("%d crashes (%v), %d merges, %d jobs, %d events, %d audit records: none lost, none doubled", count,
		c.kills, len(c.commits), len(c.jobs), len(c.told()), records)
	c.cancelJobs(labtest.Train)
}
