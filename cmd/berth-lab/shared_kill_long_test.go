//go:build long

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/reconciler/gitrepo/gittest"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// killed is a scene in which the daemon is killed while the project lattice is attached to the
// department's cluster, gets other terms, or is detached. A job of collider runs there meanwhile.
type killed struct {
	*sharing
	tree map[string]string // of main, without what changes
	ends map[string]ending // of changes, by name: each time the same
}

// ending is the expected result of a change.
type ending struct {
	state  string
	events []string // nil: any
}

// moment is a time at which the daemon is killed: a delay after a log line, or when the control host
// begins the n-th request with effects. The zero moment never comes.
type moment struct {
	line   string
	delay  time.Duration
	effect int
}

func (m moment) String() string {
	switch {
	case m.effect > 0:
		return fmt.Sprintf("killed at request %d", m.effect)
	case m.line != "":
		return fmt.Sprintf("killed %.2f s after %s", m.delay.Seconds(), m.line)
	}
	return "not killed"
}

func newKilled(t *testing.T, image string) *killed {
	t.Helper()
	k := &killed{sharing: newSharing(t, image), ends: map[string]ending{}}
	k.tree = maps.Clone(k.files)
	maps.Copy(k.tree, sharingFiles(t, k.files))
	maps.Copy(k.tree, filesOf(runtimeFiles(), departmentFile, latticeTerms, colliderTerms))
	k.tree[pathOf(t, colliderShare)] = viewYAML(colliderShare, department, "")
	delete(k.tree, labtest.TrainFile)
	k.declare(k.tree)
	k.serve()
	k.attached(department, "physics.collider attached Attached", "physics.lattice requested NotAccepted")
	k.running = map[string]sharedJob{"collider": k.untilRunning(k.submitTo(department, carl, "--gres=gpu:1"))}
	k.ends["detach"] = ending{state: k.state()} // a detachment leaves what was there before
	return k
}

// change makes a change by a pull request, kills the daemon and starts another. The change has to end as
// it does without that. It returns false if it ended before the moment.
func (k *killed) change(name string, m moment) bool {
	k.Helper()
	view := pathOf(k, latticeShare)
	limited := func(limit string) map[string]string {
		require.Contains(k, k.tree[latticeTerms], "max_gpus: 2\n")
		return map[string]string{latticeTerms: strings.Replace(k.tree[latticeTerms], "max_gpus: 2\n", limit, 1)}
	}
	c, fingerprint := gittest.Commit{}, ""
	want := []string{"physics.collider attached Attached", "physics.lattice attached Attached"}
	switch name {
	case "attach":
		c.Files = map[string]string{view: viewYAML(latticeShare, department, "")}
	case "narrow":
		c.Files, fingerprint = limited("max_gpus: 1\n    max_running_jobs: 1\n"), k.daemonsOf()
	case "widen":
		c.Files, fingerprint = limited("max_gpus: 2\n"), k.daemonsOf()
	case "detach":
		c.Remove, want[1] = []string{view}, "physics.lattice requested NotAccepted"
		k.queued = k.submitTo(department, anna, "--begin=now+1hour")
		k.running["lattice"] = k.untilRunning(k.submitTo(department, anna, "--gres=gpu:1"))
	}
	events := len(k.told())
	_, end := k.logged(0, "")
	requests := k.requests("dev-lab-1")
	pull := k.merge(name+" lattice", c)
	came := m != moment{} && k.killAt(m, end, requests)
	k.attached(department, want...)
	_, err := k.untilComment(k.Context(), pull, "**Done:")
	require.NoError(k, err)
	if name == "detach" {
		k.cancelled(k.queued)
		k.ended("lattice")
	}
	k.untouched()
	if fingerprint != "" {
		require.Equal(k, fingerprint, k.daemonsOf(), "a daemon was touched")
	}
	k.asDeclared(department)
	k.compare(name, ending{k.state(), k.eventsSince(events)})
	k.Logf("%s, %v: %v", name, m, came)
	return came
}

// compare verifies that a change has ended as it did before.
func (k *killed) compare(name string, is ending) {
	k.Helper()
	was, ok := k.ends[name]
	k.ends[name] = is
	if !ok {
		return
	}
	if was.events != nil {
		require.Equal(k, was.events, is.events, name)
	}
	if is.state != was.state { // the whole texts are too long to be read
		before, now := strings.Split(was.state, "\n"), strings.Split(is.state, "\n")
		without := func(lines, others []string) string {
			return strings.Join(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return slices.Contains(others, l) }), "\n")
		}
		require.Failf(k, name+" ended otherwise", "now:\n%s\nbefore:\n%s", without(now, before), without(before, now))
	}
}

// killAt kills the daemon and starts it again without its mirror. It returns false if the change ends
// before the moment. Log lines count from an offset of the log on.
func (k *killed) killAt(m moment, since int64, requests <-chan struct{}) bool {
	k.Helper()
	n, came := 0, false
	k.eventually(m.String(), func() string {
		for more := true; more && n < m.effect; {
			select {
			case <-requests:
				n++
			default:
				more = false
			}
		}
		lines, _ := k.logged(since, m.line)
		came = m.effect > 0 && n == m.effect || m.line != "" && len(lines) > 0
		done, _ := k.logged(since, `"to":"running"`)
		if came || m.effect > 0 && len(done) > 0 {
			return ""
		}
		return fmt.Sprintf("%d requests", n)
	})
	if !came {
		return false
	}
	time.Sleep(m.delay) // the moment of the kill
	k.daemon.kill()
	require.NoError(k, os.RemoveAll(filepath.Join(k.dir, k.config.name+"-mirror")))
	k.serve()
	return true
}

// state is all that a change leaves on hosts, in the accounting database and in the status.
func (k *killed) state() string {
	k.Helper()
	var record map[string]any
	require.NoError(k, json.Unmarshal([]byte(k.on("dev-lab-1", "cat "+profile.Stack{Cluster: cluster.Name(department)}.Record())), &record))
	delete(record, "files") // has more after the first change of the files
	delete(record, "backed_up")
	delete(record, "sha256") // of all of them
	parts := []string{show(record), k.onController(department, strings.Join([]string{
		"sacctmgr -n -P list assoc format=account,user,share,grptres,grpjobs,grpsubmitjobs,maxwall,maxtresperjob,qos,defaultqos | sort",
		"sacctmgr -n -P list qos format=name,flags,priority,preempt,preemptmode,grptres,maxtrespa,gracetime | sort",
		"sacctmgr -n -P list account format=account,description,organization | sort",
		"sacctmgr -n -P list user format=user,defaultaccount | sort",
		"scontrol -o show partition",
		"cd $(dirname $SLURM_CONF); for f in *.conf; do echo $f; cat $f; done",
	}, "; "))}
	for _, n := range k.nodes {
		parts = append(parts, n.Name+" has the users "+k.on(n.Name, "awk -F: '$3 >= 20000 && $3 < 30000 {print $1, $3}' /etc/passwd"))
	}
	return strings.Join(append(parts, attachmentsOf(k.statusOf(department))...), "\n")
}

// eventsSince are the events after the first n of all, with the names of their resources. Events of
// several resources have no order.
func (k *killed) eventsSince(n int) []string {
	k.Helper()
	out := []string{}
	for _, e := range k.told()[n:] {
		var p struct {
			Name string `json:"resource_name"`
		}
		require.NoError(k, json.Unmarshal(e.Payload, &p))
		out = append(out, e.EventType+" "+p.Name)
	}
	slices.Sort(out)
	return out
}

// daemonsOf has the start times of the daemons of the department.
func (k *killed) daemonsOf() string {
	k.Helper()
	out, err := k.fingerprint(k.Context(), department)
	require.NoError(k, err)
	return out
}
