package slurm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// loadedFiles has the files that the daemons of a fake cluster have read. It stops Berth at an operation.
type loadedFiles struct {
	*fakeCluster
	stack  profile.Stack
	conf   string // slurm.conf that slurmctld has
	dbd    string // slurmdbd.conf that slurmdbd has
	cgroup string // cgroup.conf that slurmd has, which 22.05 reads at its start
	left   int    // number of operations until Berth stops; negative: it goes on
}

func newLoadedFiles(t *testing.T) *loadedFiles {
	t.Helper()
	c := newCluster(t)
	l := &loadedFiles{fakeCluster: c, stack: profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}, left: -1}
	l.conf, l.dbd, l.cgroup = l.file(l.stack.Conf()), l.file(l.stack.DBDConf()), l.file(l.stack.CgroupConf())
	c.ctl.before, c.wk.before = l.before, l.before
	return l
}

func (l *loadedFiles) file(path string) string { return string(l.ctl.files[path]) }

// before lets the daemons read their files.
func (l *loadedFiles) before(op runtimes.Op) error {
	switch {
	case l.left == 0:
		return errCrash
	case l.left > 0:
		l.left--
	}
	conf := l.file(l.stack.Conf())
	switch {
	case op.Write != nil && op.Write.Path == l.stack.Conf():
		conf = string(op.Write.Data)
	case op.Service != nil && slices.Contains([]string{"start", "restart"}, op.Service.Verb):
		switch began := op.Service.Verb == "restart" || !l.ctl.services[op.Service.Name]; op.Service.Name {
		case profile.Slurmctld:
			if began {
				l.conf = conf
			}
		case profile.Slurmdbd:
			if began {
				l.dbd = l.file(l.stack.DBDConf())
			}
		case profile.Slurmd:
			if op.Service.Verb == "restart" {
				l.cgroup = l.file(l.stack.CgroupConf())
			}
		}
	case op.Run != nil && op.Run.Program == "scontrol" && op.Run.Args[0] == "reconfigure":
		l.conf = conf
	}
	l.say(func() {
		l.hash = "HASH_VAL = Different Ours=0x1 Slurmctld=0x2"
		if l.conf == conf {
			l.hash = "HASH_VAL = Match"
		}
	})
	return nil
}

// drawn returns one of the units that the walk goes between.
func (l *loadedFiles) drawn(r *rand.Rand) plan.Unit {
	u := l.unit
	u.Effective.Config = []byte([]string{
		`{}`, `{"partitions":[{"name":"main","default":true},{"name":"quick"}]}`, `{"options":{"MaxJobCount":20002}}`,
		`{"confinement":"none"}`, `{"private_data":["jobs"]}`, `{"partitions":[{"name":"other","default":true}]}`,
		`{"retention":{"records_months":3,"usage_months":3}}`, `{"partitions":[{"name":"quick"},{"name":"main","default":true}]}`,
	}[r.IntN(8)])
	if r.IntN(3) == 0 {
		u.Effective.Users = nil
	}
	return u
}

// harm changes or removes a file between two attempts, as a person may.
func (l *loadedFiles) harm(r *rand.Rand) {
	path := []string{l.stack.Conf(), l.stack.DBDConf(), l.stack.CgroupConf(), l.stack.Etc() + "/gres.conf"}[r.IntN(4)]
	if r.IntN(2) == 0 {
		delete(l.ctl.files, path)
		return
	}
	l.ctl.files[path] = append(l.ctl.files[path], "# by hand\n"...)
}

// loseDaemons ends the daemons of the controller, as a loss of power does, and starts them again.
func (l *loadedFiles) loseDaemons(t *testing.T, u plan.Unit) {
	for _, name := range controlServices() {
		l.ctl.services[name] = false
	}
	require.NoError(t, l.on(t).start(t.Context(), &u, plan.Action{Verb: plan.Start, Member: "controller-0"}))
}

// hasWork reports whether an observation has something to do.
func (l *loadedFiles) hasWork(t *testing.T) bool {
	obs := l.observe(t)
	return len(obs.Drift) > 0 || slices.ContainsFunc(obs.Members, func(m plan.MemberState) bool { return m.State != plan.Running })
}

// A change that a crash interrupts anywhere goes on, and needs no more than the change itself: no file of it is taken for one that a
// person changed, after which slurmctld would restart.
func TestInterruptedChangeNeedsNoRestart(t *testing.T) {
	synctest.Test(t, interruptedChangeNeedsNoRestart)
}

func interruptedChangeNeedsNoRestart(t *testing.T) {
	for n := 0; ; n++ {
		l := newLoadedFiles(t)
		u := l.unit
		u.Effective.Config = []byte(`{"partitions":[{"name":"main","default":true},{"name":"quick"}]}`)
		l.left = n
		if err := l.apply(t, plan.Configure, u); err == nil {
			require.Greater(t, n, 20)
			return
		}
		l.left = -1
		require.NoError(t, l.apply(t, plan.Configure, u), "crash at operation %d", n)
		require.False(t, l.ctl.ran("restart slurmctld"), "crash at operation %d", n)
		require.Contains(t, l.fakeCluster.conf(), "PartitionName=quick")
		require.Equal(t, l.fakeCluster.conf(), l.conf)
	}
}

// A crash of slurmctld within a change keeps the files that it had read: jobs may run in a new partition already.
func TestFirstJobIsRaisedWithinAChange(t *testing.T) {
	l := newLoadedFiles(t)
	l.lastJob = 70
	u := l.unit
	u.Effective.Config = []byte(`{"partitions":[{"name":"main","default":true},{"name":"quick"}]}`)
	next := l.ctl.before
	l.ctl.before = func(op runtimes.Op) error {
		if op.Run != nil && op.Run.Program == "scontrol" && op.Run.Args[0] == "ping" && strings.Contains(l.conf, "quick") {
			l.left = 0 // Berth ends after the reconfigure
		}
		return next(op)
	}
	require.Error(t, l.apply(t, plan.Configure, u))
	l.ctl.before, l.left = next, -1
	l.loseDaemons(t, l.unit)
	require.Contains(t, l.conf, "PartitionName=quick")
	require.Contains(t, l.conf, "FirstJobId=1070")
	require.NoError(t, l.apply(t, plan.Configure, u))
	require.Equal(t, journal{}, l.record(t).journal)
	require.Contains(t, l.conf, "FirstJobId=1070")
}

// After any crashes, changes of mind and changed files, an attempt that ends leaves what is declared: the files, what each daemon has
// read of them, and a journal without an entry. An observation before says that something is unfinished.
func TestJournalAfterCrashes(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { walkTheJournal(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func walkTheJournal(t *testing.T, r *rand.Rand) {
	l := newLoadedFiles(t)
	var u plan.Unit
	for range 1 + r.IntN(4) {
		u = l.drawn(r)
		l.left = r.IntN(60)
		if err := l.apply(t, plan.Configure, u); err != nil {
			require.Zero(t, l.left, err)
		}
		l.left = -1
		if rec := l.record(t); !rec.journal.equal(journal{}) {
			require.True(t, l.hasWork(t), "%+v", rec.journal)
		}
		if r.IntN(4) == 0 {
			l.harm(r)
		}
		if r.IntN(4) == 0 {
			l.loseDaemons(t, u)
		}
	}
	require.NoError(t, l.apply(t, plan.Configure, u))
	for range 2 { // the start of a worker does the steps that waited for it
		for _, m := range l.observe(t).Members {
			if m.State != plan.Running {
				require.NoError(t, l.apply(t, plan.Start, u), m.Detail)
			}
		}
	}

	rec := l.record(t)
	require.Equal(t, journal{}, rec.journal)
	want, err := files(&rec)
	require.NoError(t, err)
	for _, path := range repairedPaths(l.stack) {
		if f := want[path]; f.Data != nil {
			require.Equal(t, string(f.Data), l.file(path), path)
		}
	}
	require.Equal(t, l.file(l.stack.Conf()), l.conf, "slurmctld")
	require.Equal(t, strings.ReplaceAll(l.file(l.stack.DBDConf()), "# by hand\n", ""), l.dbd, "slurmdbd")
	require.Equal(t, l.file(l.stack.CgroupConf()), l.cgroup, "slurmd")
	require.Empty(t, l.observe(t).Drift)
}
