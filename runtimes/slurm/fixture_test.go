package slurm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// sideBySide is how many labs the tests of this package share, and so how many tests run real
// Slurm at the same time. A test that waits asks Slurm again and again: six at once, on two cores, take a
// third more of processor time than two.
const sideBySide = 2

// stages are the shared labs. TestMain removes them.
var stages = sync.OnceValue(func() *pool { return &pool{turns: make(chan struct{}, sideBySide)} })

// pool lends labs to tests, one after another. A test gets one as the first test got it: on
// return it is reset and compared.
type pool struct {
	turns chan struct{} // one element for each lab that is lent

	mu   sync.Mutex
	free []*stage
	made int
}

// take returns a lab, with a cluster or without. It is made if all others are lent.
func (p *pool) take(t testing.TB, hasCluster bool) *stage {
	t.Helper()
	needSlurm(t)
	p.turns <- struct{}{}
	t.Cleanup(func() { <-p.turns })
	p.mu.Lock()
	i := slices.IndexFunc(p.free, func(s *stage) bool { return s.hasCluster == hasCluster })
	if i < 0 && p.made >= sideBySide {
		i = 0
	}
	if i >= 0 {
		s := p.free[i]
		p.free = slices.Delete(p.free, i, i+1)
		p.mu.Unlock()
		return s
	}
	p.made++
	n := p.made
	p.mu.Unlock()
	s, err := makeStage(3)
	if err != nil {
		p.lose()
		t.Fatalf("lab %d: %v", n, err)
	}
	if s.notRun == "" {
		s.pictures[false] = s.picture(t, s.base(t))
	}
	return s
}

// lose forgets a lab that is lent: the next test makes another one.
func (p *pool) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made--
}

func (p *pool) putBack(s *stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

func (p *pool) down() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.free {
		err = errors.Join(err, s.down())
	}
	p.free = nil
	return err
}

// ending is a test in its cleanup, when its own context has ended.
type ending struct{ testing.TB }

func (ending) Context() context.Context { return context.Background() }

// newStage lends a lab with the base cluster: one worker, one partition and alice. The test may
// change it by Berth and by Slurm's tools; what else it changes on a host it undoes.
func newStage(t testing.TB) *stage {
	t.Helper()
	return lent(t, true)
}

// bareStage lends a lab without a cluster, for a test of a creation or deletion, or one that
// needs an empty accounting.
func bareStage(t testing.TB) *stage {
	t.Helper()
	return lent(t, false)
}

func lent(t testing.TB, hasCluster bool) *stage {
	t.Helper()
	s := stages().take(t, hasCluster)
	t.Cleanup(func() {
		defer func() { // also if the reset ends the test
			if !t.Failed() && !s.spoiled {
				stages().putBack(s)
				return
			}
			if t.Failed() {
				s.showLogs(t)
			}
			stages().lose()
			if err := s.down(); err != nil {
				t.Error(err)
			}
		}()
		if !t.Failed() {
			s.reset(ending{t}, hasCluster)
		}
	})
	if why := s.notRun; why != "" {
		t.Skip(why)
	}
	if s.hasCluster != hasCluster {
		s.reset(t, hasCluster)
	}
	return s
}

// showLogs prints the last lines of the daemons' logs, and the processes of each host.
func (s *stage) showLogs(t testing.TB) {
	t.Helper()
	if s.notRun != "" {
		return
	}
	for _, n := range append([]*schema.Node{s.control}, s.workers...) {
		const script = "date; ps -e -o pid,stat,etimes,args | grep -E '[s]lurm|[m]unge|[m]aria'; find /var/log/slurm /var/log/munge " +
			"-name '*.log' -exec tail -v -n 30 {} + 2>/dev/null"
		out, err := s.lab.Run(context.Background(), n.Key.Name, "sh", "-c", script+"; true")
		t.Logf("%s: %v\n%s", n.Key.Name, err, out)
	}
}

// base is the cluster of a lab that newStage lends.
func (s *stage) base(t testing.TB) plan.Unit {
	t.Helper()
	c := &company{stage: s, rt: s.runtime(t)}
	return c.unit(onePartition, []schema.UnixUser{alice}, &schema.OnJobs{CancelAfterSeconds: 1}, 0)
}

// reset restores a lab, and compares it with the first picture of one that was lent.
func (s *stage) reset(t testing.TB, hasCluster bool) {
	t.Helper()
	if s.notRun != "" {
		return
	}
	s.hosts.reset()
	c, base := &company{stage: s, rt: s.runtime(t)}, s.base(t)
	if seen := c.observe(t, base); seen.Presence == plan.Present {
		if slices.ContainsFunc(seen.Members, func(m plan.MemberState) bool { return m.State != plan.Running }) {
			t.Log("repaired before the reset: ", c.apply(t, c.plan(t, base, false)))
		}
		s.clear(t, base)
	}
	var err error
	eventually(t, "the cluster as it is lent", func() (bool, string) {
		p := c.plan(t, base, !hasCluster)
		if p.Empty() {
			return true, ""
		}
		err = c.apply(t, p)
		s.clear(t, base)
		return false, fmt.Sprint(p.Actions, err)
	})
	s.hasCluster = hasCluster
	s.removeOutputs(t, hasCluster)
	if !hasCluster {
		require.Empty(t, s.remains(t, base))
	}
	want := s.pictures[hasCluster]
	eventually(t, "the lab as the test got it", func() (bool, string) {
		seen := s.picture(t, base)
		// slurmctld knows the node, and learns of the user from slurmdbd some time after it starts.
		ready := strings.Contains(seen, "\n"+s.workers[0].Key.Name+" idle ") && strings.Contains(seen, " UserName="+alice.Name+"\n")
		if want == "" && (!hasCluster || ready) {
			want, s.pictures[hasCluster] = seen, seen
		}
		if seen != want {
			s.clear(t, base)
		}
		return seen == want, cmp.Diff(want, seen)
	})
}

// clear ends all jobs of a cluster, and undoes other changes of a person by its tools. A
// daemon may be down.
func (s *stage) clear(t testing.TB, u plan.Unit) {
	t.Helper()
	const script = `squeue -h -r -o %i | xargs -r scancel
scontrol -o show reservations | sed -n 's/^ReservationName=\([^ ]*\) .*/\1/p' | while read -r name; do scontrol delete reservationname=$name; done
for node in $(sinfo -h -N -o %N); do
	for state in undrain resume; do scontrol update nodename=$node state=$state; done
	scontrol update nodename=$node comment=
done`
	conf := "/etc/slurm/" + cluster.Name(u.Effective.Key) + "/slurm.conf"
	_, err := s.lab.Run(t.Context(), s.control.Key.Name, "sh", "-c",
		"test -e "+conf+" && export SLURM_CONF="+conf+" && ("+script+") >/dev/null 2>&1; true")
	require.NoError(t, err)
}

// removeOutputs removes what jobs wrote and Berth leaves to their users.
func (s *stage) removeOutputs(t testing.TB, hasCluster bool) {
	t.Helper()
	files := profile.JobsDir
	if hasCluster {
		files += "/*/*/*"
	}
	for _, n := range s.workers {
		_, err := s.lab.Run(context.WithoutCancel(t.Context()), n.Key.Name, "sh", "-c", "rm -rf "+files)
		require.NoError(t, err)
	}
}

// picture describes possible leftovers of a test: files, accounts, mounts, programs and processes
// of the hosts, and what Slurm's tools show.
func (s *stage) picture(t testing.TB, u plan.Unit) string {
	t.Helper()
	const ofHost = `cat /etc/passwd /etc/group /etc/hosts; cut -d' ' -f2-4 /proc/mounts | grep -v /run/user | sort
find /etc/slurm /etc/munge /etc/logrotate.d /usr/local/libexec /var/lib/berth/instances /var/lib/berth/backups /var/lib/slurm -maxdepth 1 2>/dev/null | grep -vxE '/usr/local/libexec|/var/lib/berth/[a-z]+' | sort
ls /usr/bin/*.own 2>/dev/null; ps -e -o comm= | grep -v '<defunct>' | grep -E 'slurm|munge|maria|sleep' | sort`
	// Nothing removes topology.conf, as a slurmd that started with it reads it at each reconfigure,
	// and ends after a minute without it.
	const ofCluster = `; cd $(dirname $SLURM_CONF) && for f in $(ls *.conf | grep -v topology); do echo $f; grep -v ^FirstJobId= $f | sha256sum; done; scontrol -o show partitions; scontrol -o show reservations; squeue -h; sinfo -h -N -o '%N %T %c %m %G %f %E'
sacctmgr -n -P list assoc; sacctmgr -n -P list qos; scontrol show assoc_mgr flags=assoc | grep -o 'Account=[^ ]* UserName=[^ (]*' | sort`
	var all strings.Builder
	for _, n := range append([]*schema.Node{s.control}, s.workers...) {
		script := ofHost
		if n == s.control && s.hasCluster {
			script = "export SLURM_CONF=/etc/slurm/" + cluster.Name(u.Effective.Key) + "/slurm.conf; " + ofHost + ofCluster
		}
		out, err := s.lab.Run(t.Context(), n.Key.Name, "sh", "-c", script+"; true")
		require.NoError(t, err, out)
		fmt.Fprintf(&all, "%s:\n%s\n", n.Key.Name, out)
	}
	return all.String()
}

// changeFile changes a file of a host by a script until the end of the test.
func (s *stage) changeFile(t testing.TB, host, file, script string) {
	t.Helper()
	kept := "/run/kept" + strings.ReplaceAll(file, "/", "-")
	out, err := s.lab.Run(t.Context(), host, "sh", "-ec", "cp -p "+file+" "+kept+"\n"+script)
	require.NoError(t, err, out)
	t.Cleanup(func() {
		out, err := s.lab.Run(context.Background(), host, "sh", "-ec", "cat "+kept+" >"+file+"; rm "+kept)
		require.NoError(t, err, out)
	})
}

// temporaryDir makes a directory for a lab that outlives its test.
func temporaryDir() (string, error) {
	dir, err := os.MkdirTemp("", "berth-slurm")
	return filepath.Join(dir, "lab"), err
}
