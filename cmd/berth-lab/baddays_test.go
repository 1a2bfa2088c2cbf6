package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// TestBadDays injects failures, and bad input by users, forges and other daemons, on real
// Slurm, over real SSH, with real Git. The daemon is a separate process, so that it can be
// killed. TestLongBadDays injects more failures, on each version of Slurm.
func TestBadDays(t *testing.T) {
	t.Parallel()
	s := newScene(t, hosttest.Image())
	s.playBadDays()
	s.play("a forged webhook", forgedWebhook)
	s.play("a broken document on main", brokenDocument)
	s.play("an empty tree, an unreadable tree", badTree)
	s.play("a second daemon", secondDaemon)
	s.play("a commit that changes nothing", nothingChanges)
	s.play("sync --once", syncOnce)
	require.Empty(s, s.forge.Violations(), "calls that the forge forbids")
}

func (s *scene) playBadDays() {
	s.Helper()
	s.play("slurmctld is killed", controllerKilled)
	s.play("a worker's sshd is gone", workerUnreachable)
	s.play("Git is down, then back", gitDown)
	s.play("the daemon is killed while it applies", func(s *scene) { daemonKilled(s, []kill{{applying, 0}, {applying, 0}}) })
}

// sleeper is a job that outlasts every test.
const sleeper = "#!/bin/sh\nsleep 600\n"

// saved waits until Slurm's state file has a change of a job. The file then has all earlier
// changes too. Slurm may lose later ones in a crash.
func (s *scene) saved(key schema.Key, job string) {
	s.Helper()
	var state struct{ Conf, Controller string }
	require.NoError(s, json.Unmarshal(s.statusOf(key).RuntimeState, &state))
	const mark = "saved-by-now"
	s.on(state.Controller, "SLURM_CONF="+state.Conf+" scontrol update jobid="+job+" comment="+mark)
	s.eventually("the job's comment in the state file", func() string {
		return s.on(state.Controller, "export SLURM_CONF="+state.Conf+"; d=$(scontrol show config | awk '/^StateSaveLocation/ {print $3}'); grep -qa "+mark+" $d/job_state || ls -l $d")
	})
}

func controllerKilled(s *scene) {
	// One that runs on each worker, and one that waits for them.
	var jobs []slurmtest.Job
	for _, state := range []slurmtest.State{slurmtest.Running, slurmtest.Running, slurmtest.Pending} {
		id, err := s.submit(s.Context(), labtest.Train, sleeper, "/dev/null", 2)
		require.NoError(s, err)
		job, err := s.untilJob(s.Context(), labtest.Train, id, state)
		require.NoError(s, err)
		jobs = append(jobs, job)
	}
	s.saved(labtest.Train, jobs[len(jobs)-1].ID)
	tip, events := s.git.Tip(reconciler.BranchStatus), len(s.told())
	before := s.statusOf(labtest.Train)
	daemons, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	slurmd := s.startedAt("dev-gpu-1", profile.WorkerPID)
	require.NotEmpty(s, slurmd)

	s.restarted(labtest.Train)
	s.eventually("the status is running again", func() string {
		if st := s.statusOf(labtest.Train); st.Attempt == before.Attempt || st.Phase != plan.PhaseRunning || !settled(st) {
			return show(st)
		}
		return ""
	})

	var seen []plan.Status
	for _, st := range s.history(tip, labtest.Train) {
		if member(st, "controller-0").State == plan.Stopped && condition(st, "Ready").Status == "False" &&
			condition(st, "Reconciling").Message == "start controller-0" {
			seen = append(seen, st)
		}
	}
	require.NotEmpty(s, seen, "the status never showed that slurmctld was down")
	require.Equal(s, []string{"running"}, s.toldOf(labtest.Train, events))
	for _, was := range jobs {
		now, err := s.jobOf(labtest.Train, was.ID)
		require.NoError(s, err)
		require.Equal(s, was.State, now.State, show(now))
		require.Equal(s, was.Nodes, now.Nodes)
		require.True(s, was.Submitted.Equal(now.Submitted), show(now))
	}
	require.Equal(s, slurmd, s.startedAt("dev-gpu-1", profile.WorkerPID), "the worker was touched")
	after, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	require.Equal(s, daemons, after, "the neighbour was touched")
	s.asDeclared(labtest.Train, labtest.Assembly)
	s.cancelJobs(labtest.Train)
}

func workerUnreachable(s *scene) {
	job, err := s.startJob(s.Context(), labtest.Train, sleeper)
	require.NoError(s, err)
	lost, other := job.Nodes[0], "dev-gpu-2"
	if lost == other {
		other = "dev-gpu-1"
	}
	on := func(st plan.Status, node string) plan.MemberStatus {
		i := slices.IndexFunc(st.Members, func(m plan.MemberStatus) bool { return m.Node == node })
		require.GreaterOrEqual(s, i, 0, show(st))
		return st.Members[i]
	}
	events := len(s.told())
	slurmd := s.startedAt(lost, profile.WorkerPID)

	s.sshd(lost, "KILL")
	s.eventually("the member is reported unreachable", func() string {
		st := s.statusOf(labtest.Train)
		if on(st, lost).State != plan.Unreachable || condition(st, "Ready").Status != "False" {
			return show(st)
		}
		return ""
	})
	st := s.statusOf(labtest.Train)
	require.Equal(s, plan.PhaseRunning, st.Phase, "the running members are kept")
	require.Contains(s, condition(st, "Ready").Message, "on "+lost+" cannot be reached")
	require.Equal(s, plan.Running, on(st, other).State)
	require.Equal(s, plan.Running, on(st, "dev-lab-1").State)

	// Others go on, of this instance too.
	s.repaired(other)
	s.restarted(labtest.Assembly)
	s.ready(labtest.Assembly)

	s.sshd(lost, "start")
	s.ready(labtest.Train)
	require.Equal(s, slurmd, s.startedAt(lost, profile.WorkerPID), "the worker was touched")
	require.NoError(s, s.stillRunning(s.Context(), labtest.Train, job))
	require.NotContains(s, s.toldOf(labtest.Train, events), "deleting")
	require.NotContains(s, s.toldOf(labtest.Train, events), "failed")
	s.asDeclared(labtest.Train, labtest.Assembly)
	s.cancelJobs(labtest.Train)
}

func gitDown(s *scene) {
	events, tip := len(s.told()), s.git.Tip(reconciler.BranchStatus)
	s.git.SetFaults(gittest.Faults{Down: true})
	// A user merges a third worker. The webhook arrives, and Git does not answer.
	s.put("train: a third worker", labtest.Train, labtest.InstanceYAML("train", 3))
	s.repaired("dev-gpu-1")
	s.restarted(labtest.Assembly)
	require.Empty(s, s.daemons("dev-gpu-4"), "something new was started that Git does not know of")
	require.Equal(s, tip, s.git.Tip(reconciler.BranchStatus))

	s.git.SetFaults(gittest.Faults{})
	require.NoError(s, s.forge.Redeliver(s.lastDelivery()))
	st := s.ready(labtest.Train)
	require.Len(s, st.Members, 4)
	s.asDeclared(labtest.Train, labtest.Assembly)
	// The events of the outage are published once.
	require.NotEmpty(s, s.toldOf(labtest.Assembly, events))
	require.NotContains(s, s.toldOf(labtest.Train, events), "failed")
}

// kill is a moment at which the daemon is killed: a delay after a log line.
type kill struct {
	after string
	delay time.Duration
}

// Log lines after which the daemon is killed.
const decided, applying, ended = `"msg":"decision in force"`, `"msg":"plan application started"`, `"msg":"action ended"`

// daemonKilled deletes train and creates it again, once for each kill. The daemon
// loses its mirror with each.
func daemonKilled(s *scene, kills []kill) {
	without := maps.Clone(s.base)
	delete(without, pathOf(s, labtest.Train))
	for _, m := range kills {
		cluster, _, err := s.clusterOf(s.Context(), labtest.Train)
		deleting := err == nil // it is there
		events := len(s.told())
		_, end := s.logged(0, "")
		pull := 0
		if deleting {
			s.declare(without)
		} else {
			pull = s.merge("train, once more", gittest.Commit{Files: map[string]string{pathOf(s, labtest.Train): s.base[pathOf(s, labtest.Train)]}})
		}
		s.eventually("the daemon logs "+m.after, func() string {
			if lines, _ := s.logged(end, m.after); len(lines) == 0 {
				return "not yet"
			}
			return ""
		})
		time.Sleep(m.delay) // the moment of the kill
		s.daemon.kill()
		phases, _ := s.logged(end, `"phase changed"`)
		require.NoError(s, os.RemoveAll(filepath.Join(s.dir, s.config.name+"-mirror")))
		s.serve()

		if deleting {
			s.eventually("train is gone", func() string {
				if st := s.statusOf(labtest.Train); st.Phase != "" {
					return show(st)
				}
				return ""
			})
			require.Equal(s, []string{"deleting", "deleted"}, s.toldOf(labtest.Train, events))
			left, err := s.remains(s.Context(), labtest.Train, cluster)
			require.NoError(s, err)
			require.Empty(s, left)
			s.asDeclared(labtest.Assembly)
		} else {
			st := s.ready(labtest.Train)
			require.Equal(s, []string{"requested", "running"}, s.toldOf(labtest.Train, events))
			require.Len(s, st.Members, 3)
			require.Equal(s, "dev-gpu-1 idle\ndev-gpu-2 idle", s.nodesOf(labtest.Train))
			s.asDeclared(labtest.Train, labtest.Assembly)
			_, err := s.untilComment(s.Context(), pull, "**Done: 1 instance running.**")
			require.NoError(s, err)
		}
		s.Logf("deleting=%v, killed %.2f s after %s and %d phases: as declared", deleting, m.delay.Seconds(), m.after, len(phases))
	}
}

// forgedWebhook: a push that the forge did not sign is answered 401, and that
// is all that happens.
func forgedWebhook(s *scene) {
	s.slow()
	const marker = "forged-e5b1f0"
	s.git.MustCommit(s, "main", gittest.Commit{Message: "without a webhook", Files: map[string]string{"NOTES.md": "later\n"}})
	body := `{"ref":"refs/heads/main","repository":{"full_name":"example/estate"},"after":"` + marker + `"}`
	sign := func(secret, body string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		return "sha256=" + hex.EncodeToString(mac.Sum(nil))
	}
	send := func(signature string) (int, string) {
		r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, "http://"+s.daemon.listen+"/webhooks/github", strings.NewReader(body))
		require.NoError(s, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-GitHub-Event", "push")
		r.Header.Set("X-GitHub-Delivery", marker)
		if signature != "" {
			r.Header.Set("X-Hub-Signature-256", signature)
		}
		resp, err := http.DefaultClient.Do(r)
		require.NoError(s, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(s, err)
		return resp.StatusCode, string(text)
	}
	_, end := s.logged(0, "")
	s.git.ResetRequests()
	reconciles := s.measure(s.daemon, "berth_reconciles_total", `task="estate"`)
	for _, signature := range []string{"", "sha256=", sign("another secret", body), sign(demoSecret, body+" "), strings.ToUpper(sign(demoSecret, body)), strings.TrimPrefix(sign(demoSecret, body), "sha256=")} {
		code, answer := send(signature)
		require.Equal(s, http.StatusUnauthorized, code, signature)
		require.Empty(s, answer)
	}
	require.EqualValues(s, 6, s.measure(s.daemon, "berth_webhook_deliveries_total", `result="forged"`))
	require.Zero(s, s.measure(s.daemon, "berth_webhook_deliveries_total", `result="queued"`))
	said, _ := s.logged(end, "")
	require.Empty(s, said, "something was logged")

	// The same, signed, starts the first reconciliation since, and asks Git once.
	code, _ := send(sign(demoSecret, body))
	require.Equal(s, http.StatusAccepted, code)
	s.decided()
	require.Equal(s, reconciles+1, s.measure(s.daemon, "berth_reconciles_total", `task="estate"`), "a forged webhook started a reconciliation")
	require.Equal(s, 1, s.git.Requests()["POST git-upload-pack"], "a forged webhook asked Git")
}

// brokenDocument: of a commit with one broken document everything else comes
// into force.
func brokenDocument(s *scene) {
	fingerprint, err := s.fingerprint(s.Context(), labtest.Train)
	require.NoError(s, err)
	wrong := strings.Replace(labtest.InstanceYAML("train", 3), "count:", "cuont:", 1)
	other := strings.Replace(s.base[pathOf(s, labtest.Assembly)], "max_time_minutes: 30", "max_time_minutes: 45", 1)
	require.NotEqual(s, s.base[pathOf(s, labtest.Assembly)], other)
	pull := s.merge("two changes", gittest.Commit{Files: map[string]string{pathOf(s, labtest.Train): wrong, pathOf(s, labtest.Assembly): other}})
	commit := s.git.Tip("main")
	s.decided()
	s.eventually("the other change is in force", func() string {
		if st := s.ready(labtest.Assembly); st.Revision != commit {
			return show(st)
		}
		return ""
	})
	require.Contains(s, s.partitionsOf(labtest.Assembly), "quick 45:00")

	rev := s.tree().Revision
	require.Len(s, rev.Held, 1)
	require.Equal(s, pathOf(s, labtest.Train), rev.Held[0].File)
	require.Contains(s, rev.Held[0].Message, "cuont")
	readme, err := s.git.Read(reconciler.BranchStatus, "README.md")
	require.NoError(s, err)
	require.Contains(s, readme, pathOf(s, labtest.Train))
	require.Contains(s, readme, "cuont")
	diff, err := s.git.Git("diff", "--name-status", reconciler.BranchInForce, "main")
	require.NoError(s, err)
	require.Equal(s, "M\t"+pathOf(s, labtest.Train), diff)
	message, err := s.git.Git("log", "-1", "--format=%B", reconciler.BranchInForce)
	require.NoError(s, err)
	require.Contains(s, message, pathOf(s, labtest.Train))
	require.Contains(s, message, "cuont")
	body, err := s.untilComment(s.Context(), pull, "**Done: 1 instance running.**")
	require.NoError(s, err)
	require.Contains(s, body, "held, the version in force stays")
	require.Contains(s, body, "cuont")
	require.Len(s, s.statusOf(labtest.Train).Members, 3)
	now, err := s.fingerprint(s.Context(), labtest.Train)
	require.NoError(s, err)
	require.Equal(s, fingerprint, now)

	// The version in force is kept healthy, and the correction is taken.
	s.repaired("dev-gpu-2")
	s.put("train: spelt right", labtest.Train, labtest.InstanceYAML("train", 3))
	require.Len(s, s.ready(labtest.Train).Members, 4)
	require.Empty(s, s.tree().Revision.Held)
	diff, err = s.git.Git("diff", "--name-status", reconciler.BranchInForce, "main")
	require.NoError(s, err)
	require.Empty(s, diff)
}

// badTree: main is empty, or is ambiguous for different readers.
func badTree(s *scene) {
	neighbour, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	events := len(s.told())
	good, err := s.git.Git("rev-parse", "main^{tree}")
	require.NoError(s, err)
	entries, err := s.git.Tree("main")
	require.NoError(s, err)
	var twice []gittest.TreeEntry
	for _, e := range entries {
		twice = append(twice, e)
		if e.Name == "tenants" {
			twice = append(twice, e)
		}
	}
	require.Len(s, twice, len(entries)+1)
	for _, bad := range []struct {
		entries []gittest.TreeEntry
		why     string
	}{{nil, "the estate is empty"}, {twice, `"tenants" occurs twice`}} {
		tree, err := s.git.WriteTree(bad.entries...)
		require.NoError(s, err)
		_, err = s.git.CommitTree("main", "a mistake", tree)
		require.NoError(s, err)
		require.NoError(s, s.forge.Sync())
		s.eventually("the synchronization is frozen", func() string {
			if frozen := s.tree().Revision.Frozen; !strings.Contains(frozen, bad.why) {
				return "frozen: " + frozen
			}
			return ""
		})
		readme, err := s.git.Read(reconciler.BranchStatus, "README.md")
		require.NoError(s, err)
		require.Contains(s, readme, "Synchronization is frozen")
		require.EqualValues(s, 1, s.measure(s.daemon, "berth_sync_frozen"))
		s.repaired("dev-gpu-1") // the state in force is still repaired

		_, err = s.git.CommitTree("main", "taken back", good)
		require.NoError(s, err)
		require.NoError(s, s.forge.Sync())
		s.decided()
		require.Zero(s, s.measure(s.daemon, "berth_sync_frozen"))
	}
	s.asDeclared(labtest.Train, labtest.Assembly)
	require.Empty(s, s.toldOf(labtest.Assembly, events))
	require.NotContains(s, s.toldOf(labtest.Train, events), "deleting")
	now, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	require.Equal(s, neighbour, now)
}

// secondDaemon: a second daemon starts. The first ends by itself, and could do no
// harm if it did not.
func secondDaemon(s *scene) {
	first, epoch := s.daemon, s.tree().Revision.Epoch
	config := s.config
	config.name = "second"
	second, err := s.launch(config)
	require.NoError(s, err)
	s.daemon = second // always closed with the stage
	defer func() {
		if s.Failed() {
			s.Logf("the second daemon's last words:\n%s", lastLines(second.log, 20))
		}
		require.NoError(s, second.stop())
		s.daemon = nil
	}()
	require.NoError(s, s.untilReady(s.Context(), second))
	s.forge.SetWebhook("http://" + second.listen + "/webhooks/github")
	require.Greater(s, s.tree().Revision.Epoch, epoch)

	s.repaired("dev-gpu-1") // by either: the first meets the status branch as it writes
	await.Receive(s, "the end of the first daemon", first.ended, func() any { return lastLines(first.log, 20) })
	require.ErrorContains(s, first.err, "exit status 1")
	said, _ := s.logged(0, "another daemon leads")
	require.NotEmpty(s, said)

	s.repaired("dev-gpu-1")
	node, _ := s.lab.Node("dev-gpu-1")
	host := s.hosts.Host(plan.Member{Node: node.Name, Address: node.Address})
	intent := runtimes.Op{Remove: &runtimes.Remove{Path: profile.InstanceDir + "/none"}}
	_, err = host.Do(s.Context(), runtimes.Stamp{Epoch: epoch, ActionID: "test"}, intent)
	require.ErrorIs(s, err, runtimes.ErrStaleEpoch)
	_, err = host.Do(s.Context(), runtimes.Stamp{Epoch: s.tree().Revision.Epoch, Leader: s.tree().Revision.Leader, ActionID: "test"}, intent)
	require.NoError(s, err)
	s.asDeclared(labtest.Train, labtest.Assembly)
	s.told()
}

// nothingChanges: a commit without a change to instances causes no call of a runtime.
func nothingChanges(s *scene) {
	s.slow()
	calls := s.measure(s.daemon, "berth_runtime_calls_total")
	require.EqualValues(s, 2, calls, "each instance was observed once")
	s.push(gittest.Commit{Message: "a note", Files: map[string]string{"NOTES.md": "nothing of Berth's\n"}})
	s.decided()
	name := strings.Replace(s.base["tenants/physics/tenant.yaml"], "display_name: ", "display_name: The ", 1)
	require.NotEqual(s, s.base["tenants/physics/tenant.yaml"], name)
	s.push(gittest.Commit{Message: "another name", Files: map[string]string{"tenants/physics/tenant.yaml": name}})
	s.decided()
	// What they would cause would be under way before another one is decided.
	s.push(gittest.Commit{Message: "another note", Files: map[string]string{"NOTES.md": "nothing of Berth's either\n"}})
	s.decided()
	require.Equal(s, calls, s.measure(s.daemon, "berth_runtime_calls_total"))
}

// syncOnce: the same without a daemon.
func syncOnce(s *scene) {
	require.NoError(s, s.daemon.stop())
	s.daemon = nil
	s.kill("dev-lab-1", s.controllerPID(labtest.Assembly)) // not yet observed
	s.put("train: a third worker", labtest.Train, labtest.InstanceYAML("train", 3))
	code, output := s.sync()
	require.Zero(s, code, output)
	require.Len(s, s.ready(labtest.Train).Members, 4)
	s.asDeclared(labtest.Train, labtest.Assembly)

	before := s.everything()
	tip := s.git.Tip(reconciler.BranchStatus)
	code, output = s.sync()
	require.Zero(s, code, output)
	require.Equal(s, before, s.everything())
	changed, err := s.git.Git("log", "--format=", "--name-only", tip+".."+reconciler.BranchStatus)
	require.NoError(s, err)
	require.Equal(s, "revision.yaml", changed, "only the epoch is committed")

	// An unschedulable instance.
	key := schema.InstanceKey("biology", "genomes", "second")
	s.put("second: too much", key, strings.Replace(s.base[pathOf(s, labtest.Assembly)], "name: assembly", "name: second", 1))
	code, output = s.sync()
	require.Equal(s, 1, code, output)
	require.Contains(s, output, key.String())
	require.Contains(s, output, "no node")
	require.Equal(s, before, s.everything(), "the others are left alone")
}
