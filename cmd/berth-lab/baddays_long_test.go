//go:build long

package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/examples/explore"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// TestLongBadDays plays those of TestBadDays, and failures of hosts and of the daemon that
// take long, on each version of Slurm in a lab of its own, at the same time.
func TestLongBadDays(t *testing.T) {
	for _, suite := range explore.Draw(t, 1, []string{"bookworm", "trixie"}) { // Slurm 22.05 and 24.11
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, suite)
			draw := rand.New(rand.NewPCG(explore.Seed(t), 0))
			random := func(most time.Duration) time.Duration { return time.Duration(draw.Int64N(int64(most))) }
			s.playBadDays()
			s.play("a forged webhook", forgedWebhook)
			s.play("a broken document on main", brokenDocument)
			s.play("an empty tree, an unreadable tree", badTree)
			s.play("a second daemon", secondDaemon)
			s.play("a commit that changes nothing", nothingChanges)
			s.play("sync --once", syncOnce)
			s.play("a host accepts and hangs", hostHangs)
			s.play("the control host's cable is out", controllerCutOff)
			s.play("the daemon is killed anywhere", func(s *scene) {
				daemonKilled(s, []kill{{applying, 0}, {applying, 0}, {decided, 0}, {ended, 0}, {applying, random(time.Second)},
					{applying, random(3 * time.Second)}})
			})
			require.Empty(s, s.forge.Violations(), "calls that the forge forbids")
		})
	}
}

// hostHangs: the worker of assembly accepts connections and never answers.
func hostHangs(s *scene) {
	s.repaired("dev-gpu-1")
	goroutines := s.measure(s.daemon, "go_goroutines")

	s.sshd("dev-gpu-3", "STOP")
	s.eventually("the member is reported unreachable", func() string {
		if st := s.statusOf(labtest.Assembly); member(st, "worker-0").State != plan.Unreachable {
			return show(st)
		}
		return ""
	})
	s.repaired("dev-gpu-1") // of another tenant, while the host hangs
	require.Equal(s, plan.PhaseRunning, s.statusOf(labtest.Assembly).Phase)
	s.observed(6)
	s.eventually("calls to the host do not pile up", func() string {
		if now := s.measure(s.daemon, "go_goroutines"); now > goroutines+15 {
			return show([]float64{goroutines, now})
		}
		return ""
	})

	s.sshd("dev-gpu-3", "CONT")
	s.ready(labtest.Assembly)
	s.eventually("the calls left no process", func() string {
		if now := s.measure(s.daemon, "go_goroutines"); now > goroutines+8 {
			return show([]float64{goroutines, now})
		}
		return ""
	})
	s.asDeclared(labtest.Train, labtest.Assembly)
}

// controllerCutOff: the network drops all packets to the host of both control planes.
// Meanwhile a user deletes an instance and reverts that.
func controllerCutOff(s *scene) {
	before, events := s.everything(), len(s.told())
	job, err := s.startJob(s.Context(), labtest.Train, sleeper)
	require.NoError(s, err)
	s.on("dev-lab-1", "ip link set eth0 down")
	for _, key := range []schema.Key{labtest.Train, labtest.Assembly} {
		s.eventually("the state of "+key.Name+" is unknown", func() string {
			if c := condition(s.statusOf(key), "Ready"); c.Status != "Unknown" || !strings.Contains(c.Message, "dev-lab-1") {
				return show(c)
			}
			return ""
		})
		require.Equal(s, plan.PhaseRunning, s.statusOf(key).Phase)
	}
	tip := s.git.Tip(reconciler.BranchStatus)
	s.observed(8) // each with another failure
	news, err := s.git.Git("log", "--format=%h", tip+".."+reconciler.BranchStatus)
	require.NoError(s, err)
	require.LessOrEqual(s, len(strings.Fields(news)), 4, "the status is written repeatedly without a change")

	without := maps.Clone(s.base)
	delete(without, pathOf(s, labtest.Assembly))
	s.declare(without)
	s.decided()
	require.Equal(s, plan.PhaseDeleting, s.statusOf(labtest.Assembly).Phase)
	s.observed(4)
	require.Equal(s, plan.PhaseDeleting, s.statusOf(labtest.Assembly).Phase)
	s.declare(s.base)
	s.decided()

	s.on("dev-lab-1", "ip link set eth0 up")
	s.ready(labtest.Train)
	s.ready(labtest.Assembly)
	require.Equal(s, before, s.everything(), "a daemon was touched")
	require.Equal(s, []string{"deleting", "requested", "running"}, s.toldOf(labtest.Assembly, events))
	require.Empty(s, s.toldOf(labtest.Train, events))
	require.NoError(s, s.stillRunning(s.Context(), labtest.Train, job))
	s.cancelJobs(labtest.Train)
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
		r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, "http://"+s.daemon.listen+"/webhooks/github",
			strings.NewReader(body))
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
	for _, signature := range []string{"", "sha256=", sign("another secret", body), sign(demoSecret, body+" "),
		strings.ToUpper(sign(demoSecret, body)), strings.TrimPrefix(sign(demoSecret, body), "sha256=")} {
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
	require.Equal(s, reconciles+1, s.measure(s.daemon, "berth_reconciles_total", `task="estate"`),
		"a forged webhook started a reconciliation")
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
	pull := s.merge("two changes",
		gittest.Commit{Files: map[string]string{pathOf(s, labtest.Train): wrong, pathOf(s, labtest.Assembly): other}})
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
	_, err = host.Do(s.Context(), runtimes.Stamp{Epoch: s.tree().Revision.Epoch, Leader: s.tree().Revision.Leader, ActionID: "test"},
		intent)
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
	// The effects of these commits would begin before another commit is decided.
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
