//go:build long

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/explore"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// sharing is a scene with shared runtimes.
type sharing struct {
	*scene
	running map[string]sharedJob // jobs that run, by name
	queued  sharedJob            // of lattice
}

// newSharing brings up a lab with the estate of sharingFiles.
func newSharing(t *testing.T, image string) *sharing {
	t.Helper()
	s := &sharing{scene: newScene(t, image)}
	s.git.MustCommit(t, "main", gittest.Commit{Message: "before the shared runtimes", Files: sharingFiles(t, s.files)})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's last words:\n%s", lastLines(filepath.Join(s.dir, "berth.log"), 40))
		}
	})
	return s
}

// mergeAs merges a pull request of a user once its checks succeed and its plan has the texts, and waits until it is in
// force. It returns the number of the pull request.
func (s *sharing) mergeAs(login, title string, c gittest.Commit, says ...string) (pull int) {
	s.Helper()
	branch := strings.ReplaceAll(title, " ", "-")
	pull, err := s.propose(branch, title, login, c)
	require.NoError(s, err)
	_, err = s.untilCheck(s.Context(), branch, "success")
	require.NoError(s, err, title)
	for _, text := range says { // of jobs of the last observation
		s.eventually(title+": "+text, func() string {
			if !labtest.PlanShown(s.forge, pull) { // the comment is written after the checks
				return "the plan is not shown"
			}
			body := s.forge.Comments(pull)[0].Body
			if strings.Contains(body, text) {
				return ""
			}
			c.Message, c.Parent = title, s.git.Tip("main")
			require.NoError(s, s.stage.push(branch, login, c)) // it is planned again
			_, err := s.untilCheck(s.Context(), branch, "success")
			require.NoError(s, err, title)
			return body
		})
	}
	_, err = s.stage.merge(s.Context(), pull, login)
	require.NoError(s, err, title)
	s.eventually(title+" is in force", func() string {
		if rev := s.tree().Revision; rev.Commit != s.git.Tip("main") || len(rev.Held) > 0 {
			return show(rev)
		}
		return ""
	})
	return pull
}

// filesOf returns some of the documents.
func filesOf(all map[string]string, paths ...string) map[string]string {
	out := map[string]string{}
	for _, path := range paths {
		out[path] = all[path]
	}
	return out
}

// attached waits until the shared runtime runs and its attachments are as given: project, phase and
// reason.
func (s *sharing) attached(runtime schema.Key, want ...string) plan.Status {
	s.Helper()
	var st plan.Status
	s.eventually(fmt.Sprintf("%s has %v", runtime, want), func() string {
		st = s.statusOf(runtime)
		if got := attachmentsOf(st); !slices.Equal(got, want) || st.Phase != plan.PhaseRunning || !settled(st) {
			return strings.Join(got, "\n") + "\n" + show(st.Conditions)
		}
		return ""
	})
	return st
}

func attachmentsOf(st plan.Status) (out []string) {
	for _, a := range st.Attachments {
		out = append(out, fmt.Sprintf("%s %s %s", a.ProjectID, a.Phase, a.Reason))
	}
	return out
}

// shareRuntimes deploys both runtimes, and attaches the three projects. The first deployment of commons
// fails, as there is a file of an administrator in the place of one of Berth's.
func (s *sharing) shareRuntimes() {
	s.Helper()
	all := runtimeFiles()
	foreign := "/etc/slurm/" + cluster.Name(commons)
	s.on("dev-lab-1", "mkdir -p "+foreign+" && echo mine >"+foreign+"/slurm.conf")
	s.mergeAs(labtest.TenantOwner, "declare the department",
		gittest.Commit{Files: filesOf(all, departmentFile, latticeTerms, colliderTerms)})
	s.mergeAs(labtest.Administrator, "declare the commons",
		gittest.Commit{Files: filesOf(all, campusRuntimeFile, genomesTerms, guestTerms)})
	s.attached(department, "physics.collider requested NotAccepted", "physics.lattice requested NotAccepted")

	s.mergeAs(labtest.AssemblyOwner, "genomes accepts",
		gittest.Commit{Files: map[string]string{pathOf(s, genomesShare): viewYAML(genomesShare, commons, "")}})
	s.eventually("the attachment of genomes failed", func() string {
		if st := s.statusOf(commons); st.Phase != plan.PhaseFailed || !slices.Contains(attachmentsOf(st), "biology.genomes failed Failed") {
			return show(st)
		}
		return ""
	})
	require.Contains(s, s.statusOf(commons).FailureReason, "was not made by Berth")
	s.on("dev-lab-1", "rm -r "+foreign) // while commons waits for its next attempt, another project is attached elsewhere
	s.mergeAs(labtest.ProjectAdmin, "lattice accepts", gittest.Commit{Files: map[string]string{
		pathOf(s, latticeShare): viewYAML(latticeShare, department, "  submission_limits:\n    max_walltime_minutes: 120\n"),
	}})
	s.attached(department, "physics.collider requested NotAccepted", "physics.lattice attached Attached")
	s.attached(commons, "biology.genomes attached Attached", "physics.collider requested NotAccepted")
	s.mergeAs(colliderOwner, "collider accepts and lends", gittest.Commit{Files: map[string]string{
		pathOf(s, colliderShare): viewYAML(colliderShare, department, ""),
		pathOf(s, colliderGuest): viewYAML(colliderGuest, commons, ""),
		contributionFile:         contributionYAML,
	}})
	s.attached(commons, "biology.genomes attached Attached", "physics.collider attached Attached")
	st := s.attached(department, "physics.collider attached Attached", "physics.lattice attached Attached")
	lent := member(st, "worker."+lentNode)
	require.Equal(s, plan.Running, lent.State, show(st))
	require.Equal(s, "physics.collider", lent.Loan.ProjectID)
	require.Equal(s, "shared_service", s.statusOf(commons).Observed.Unit.Effective.TenantBoundaryMode)
	for _, view := range []schema.Key{latticeShare, colliderShare, colliderGuest, genomesShare} {
		require.Empty(s, s.ready(view).Members)
	}
	s.asDeclared(labtest.Train, department, commons)
}

// sharedJob is a job on a shared runtime.
type sharedJob struct {
	runtime schema.Key
	id      string
	facts   string // state, start, nodes, number of restarts
}

// trySubmit submits a job that outlasts the test, with the account that the user has without naming one.
// The options are in the script, as users write them.
func (s *sharing) trySubmit(runtime schema.Key, user schema.UnixUser, options ...string) (string, error) {
	unit, stamp, err := s.unit(s.Context(), runtime)
	if err != nil {
		return "", err
	}
	script := "#!/bin/sh\n"
	for _, option := range options {
		script += "#SBATCH " + option + "\n"
	}
	return s.jobs.Submit(s.Context(), unit, stamp, user, script+"sleep 600\n")
}

// submitTo submits a job that is accepted.
func (s *sharing) submitTo(runtime schema.Key, user schema.UnixUser, options ...string) sharedJob {
	s.Helper()
	id, err := s.trySubmit(runtime, user, options...)
	require.NoError(s, err)
	return sharedJob{runtime: runtime, id: id}
}

// untilRunning waits until a job runs.
func (s *sharing) untilRunning(j sharedJob) sharedJob {
	s.Helper()
	_, err := s.untilJob(s.Context(), j.runtime, j.id, slurmtest.Running)
	require.NoError(s, err)
	j.facts = s.factsOf(j)
	return j
}

// onController runs a line of shell on the controller of a cluster, with its configuration.
func (s *sharing) onController(key schema.Key, script string) string {
	s.Helper()
	var state struct{ Conf, Controller string }
	require.NoError(s, json.Unmarshal(s.statusOf(key).RuntimeState, &state))
	return s.on(state.Controller, "export SLURM_CONF="+state.Conf+"; "+script)
}

func (s *sharing) factsOf(j sharedJob) string {
	s.Helper()
	return s.onController(j.runtime,
		"scontrol -o show job "+j.id+" | grep -oE '(JobState|Account|Restarts|StartTime|NodeList)=\\S*' | sort | tr '\\n' ' '")
}

// untouched verifies that all jobs that run do so as they did, without a restart.
func (s *sharing) untouched() {
	s.Helper()
	for name, j := range s.running {
		require.Contains(s, j.facts, "JobState=RUNNING", name)
		require.Equal(s, j.facts, s.factsOf(j), name)
	}
}

// cancelled waits until a job has ended by a cancellation.
func (s *sharing) cancelled(j sharedJob) {
	s.Helper()
	job, err := s.untilJob(s.Context(), j.runtime, j.id, slurmtest.Failed)
	require.NoError(s, err)
	require.Equal(s, "CANCELLED", job.Detail, show(job))
}

// ended waits until a job that ran has ended by a cancellation.
func (s *sharing) ended(name string) {
	s.Helper()
	s.cancelled(s.running[name])
	delete(s.running, name)
}

// cancel cancels a job that runs.
func (s *sharing) cancel(name string) {
	s.Helper()
	s.onController(s.running[name].runtime, "scancel "+s.running[name].id)
	s.ended(name)
}

func (s *sharing) runJobs() {
	s.Helper()
	own := "--nodelist=" + member(s.statusOf(department), "worker-0").Node
	s.running = map[string]sharedJob{
		"lattice":           s.submitTo(department, anna, "--gres=gpu:1", own),
		"lattice, lent":     s.submitTo(department, anna, "--gres=gpu:1", "--constraint=from_physics.collider"),
		"collider":          s.submitTo(department, carl, "--gres=gpu:1", own),
		"collider, commons": s.submitTo(commons, carl, "--gres=gpu:1"),
		"genomes":           s.submitTo(commons, dora, "--gres=gpu:1"),
	}
	s.queued = s.submitTo(department, anna, "--begin=now+1hour")
	for name, j := range s.running {
		s.running[name] = s.untilRunning(j)
	}
	require.Contains(s, s.running["lattice"].facts, "Account=physics.lattice ")
	require.Contains(s, s.running["collider"].facts, "Account=physics.collider ")
	require.Contains(s, s.running["genomes"].facts, "Account=biology.genomes ")
	require.Contains(s, s.running["lattice, lent"].facts, "NodeList="+lentNode+" ")
}

// refuseOverLimit submits jobs over the limit of each side. berth explain leads from the word in the
// refusal to the lines of the estate.
func (s *sharing) refuseOverLimit() {
	s.Helper()
	for option, c := range map[string]struct {
		files []string
		line  string
	}{
		"--time=200":         {[]string{latticeTerms, pathOf(s, latticeShare)}, "max_walltime_minutes: "},
		"--nodes=2 --gpus=3": {[]string{latticeTerms}, "max_gpus: "},
	} {
		limit := s.refused(department, anna, strings.Fields(option)...)
		for name, args := range map[string][]string{"consumer": {"physics.lattice/share"}, "owner": {"physics/department"}} {
			out, err := exec.CommandContext(s.Context(), s.berth,
				append([]string{"explain", "--repo", s.git.Dir, "--rev", "main"}, append(args, limit)...)...).CombinedOutput()
			require.NoError(s, err, "%s: %s", name, out)
			for _, file := range c.files {
				text, err := s.git.Read("main", file)
				require.NoError(s, err)
				before, _, found := strings.Cut(text, c.line)
				require.True(s, found)
				require.Contains(s, string(out), fmt.Sprintf("%s:%d", file, strings.Count(before, "\n")+1), name)
			}
		}
	}
}

// refused submits a job that is refused, and returns the limit.
func (s *sharing) refused(runtime schema.Key, user schema.UnixUser, options ...string) string {
	s.Helper()
	_, err := s.trySubmit(runtime, user, options...)
	require.Error(s, err)
	found := regexp.MustCompile(`sbatch: error: ((Assoc|QOS)\w+)`).FindStringSubmatch(err.Error())
	require.NotNil(s, found, err)
	return found[1]
}

// changeTerms makes the terms of lattice narrower than what it uses, and then wider.
func (s *sharing) changeTerms() {
	s.Helper()
	daemons := func() (out string) {
		for _, key := range []schema.Key{department, commons} {
			one, err := s.fingerprint(s.Context(), key)
			require.NoError(s, err)
			out += one + s.onController(key, "stat -c '%n %i %Y' $(dirname $SLURM_CONF)/*")
		}
		return out
	}
	before := daemons()
	_, err := s.trySubmit(department, anna, "--begin=now+1hour", "--gpus=2", "--nodes=2")
	require.NoError(s, err)
	for _, change := range []struct {
		title, gpus string
		check       func()
	}{
		{"narrow the terms", "max_gpus: 1", func() {
			require.Equal(s, "AssocGrpGRES", s.refused(department, anna, "--gpus=2", "--nodes=2"))
		}},
		{"widen the terms", "max_gpus: 4", func() {
			_, err := s.trySubmit(department, anna, "--begin=now+1hour", "--gpus=4", "--nodes=2")
			require.NoError(s, err)
		}},
	} {
		text, err := s.git.Read("main", latticeTerms)
		require.NoError(s, err)
		now := regexp.MustCompile(`max_gpus: \d+`).ReplaceAllString(text, change.gpus)
		pull := s.mergeAs(labtest.TenantOwner, change.title, gittest.Commit{Files: map[string]string{latticeTerms: now}})
		_, err = s.untilComment(s.Context(), pull, "**Done:")
		require.NoError(s, err)
		s.attached(department, "physics.collider attached Attached", "physics.lattice attached Attached")
		change.check()
		s.untouched()
		require.Equal(s, before, daemons(), "%s: a daemon or a file was touched", change.title)
	}
}

// takeNodeBack ends the loan of collider's node, on which a job of lattice runs. It ends by the rule of
// the loan.
func (s *sharing) takeNodeBack() {
	s.Helper()
	pull := s.mergeAs(colliderOwner, "take the node back", gittest.Commit{Remove: []string{contributionFile}},
		"1 running job ends (1 of user `anna`), 2 queued jobs can no longer start, 2 running jobs continue, 1 queued job is kept")
	body, err := s.untilComment(s.Context(), pull, "**Done:")
	require.NoError(s, err)
	require.Contains(s, body, "| running, ended | 1 | anna (physics.lattice) 1 | "+s.running["lattice, lent"].id+" |")
	s.ended("lattice, lent")
	st := s.attached(department, "physics.collider attached Attached", "physics.lattice attached Attached")
	require.Empty(s, member(st, "worker."+lentNode))
	require.NotContains(s, s.nodesOf(department), lentNode)
	s.untouched()
	s.asDeclared(labtest.Train, department, commons)
	require.NotContains(s, s.on(lentNode, "cut -d: -f1 /etc/passwd"), "anna")
}

// detachProjects detaches lattice, which withdraws, and genomes, whose terms end. Each has a running
// job and a queued one.
func (s *sharing) detachProjects() {
	s.Helper()
	queued := s.submitTo(commons, dora, "--begin=now+1hour")
	_, end := s.logged(0, "")
	s.mergeAs(labtest.ProjectAdmin, "lattice withdraws", gittest.Commit{Remove: []string{pathOf(s, latticeShare)}})
	s.killedAfter(applying, end)
	s.mergeAs(labtest.Administrator, "end the terms of genomes", gittest.Commit{Remove: []string{genomesTerms}})
	s.cancelled(queued)
	s.eventually("commons waits for the job of genomes", func() string {
		st := s.statusOf(commons)
		if !strings.Contains(condition(st, "Ready").Message,
			"account biology.genomes still has running jobs, and Berth waits for their end") {
			return show(st)
		}
		return ""
	})
	require.Equal(s, []string{"biology.genomes attached Detaching", "physics.collider attached Attached"},
		attachmentsOf(s.statusOf(commons)))
	require.Equal(s, "AssocGrpSubmitJobsLimit", s.refused(commons, dora))
	require.Equal(s, s.running["genomes"].facts, s.factsOf(s.running["genomes"]))
	s.cancel("genomes")

	s.cancelled(s.queued)
	s.ended("lattice")
	s.attached(department, "physics.collider attached Attached", "physics.lattice requested NotAccepted")
	s.noTraceOf(department, "lattice", "anna")
	s.attached(commons, "physics.collider attached Attached")
	s.noTraceOf(commons, "genomes", "dora")
	s.untouched()
}

// killedAfter kills the daemon after a line that its log has from an offset on, and starts another one
// without its mirror. TestLongSharedRuntimeSurvivesKills does so at each step.
func (s *sharing) killedAfter(line string, since int64) {
	s.Helper()
	s.eventually("the daemon logs "+line, func() string {
		if lines, _ := s.logged(since, line); len(lines) == 0 {
			return "not yet"
		}
		return ""
	})
	s.daemon.kill()
	require.NoError(s, os.RemoveAll(filepath.Join(s.dir, s.config.name+"-mirror")))
	s.serve()
}

// noTraceOf verifies that a cluster has nothing of a detached project and its user.
func (s *sharing) noTraceOf(runtime schema.Key, project, user string) {
	s.Helper()
	accounting := s.onController(runtime,
		"sacctmgr -n -P list assoc format=account,user; sacctmgr -n -P list account format=account; sacctmgr -n -P list qos format=name; "+
			"sacctmgr -n -P list user format=user; scontrol show partition; cat $SLURM_CONF")
	require.Contains(s, accounting, "physics.collider") // which stays
	require.NotContains(s, accounting, project)
	require.NotContains(s, accounting, user)
	node := member(s.statusOf(runtime), "worker-0").Node
	require.NotContains(s, s.on(node, "cut -d: -f1 /etc/passwd"), user)
}

// deleteRuntimes deletes both runtimes: not before their attachments end.
func (s *sharing) deleteRuntimes() {
	s.Helper()
	_, err := s.propose("too-early", "delete a runtime that is used", labtest.TenantOwner, gittest.Commit{Remove: []string{departmentFile}})
	require.NoError(s, err)
	check, err := s.untilCheck(s.Context(), "too-early", "failure")
	require.NoError(s, err)
	for _, file := range []string{colliderTerms, latticeTerms, pathOf(s, colliderShare)} {
		require.Contains(s, check.summary, file)
	}

	s.mergeAs(colliderOwner, "collider withdraws", gittest.Commit{Remove: []string{pathOf(s, colliderShare), pathOf(s, colliderGuest)}})
	s.cancel("collider")
	s.cancel("collider, commons")
	s.attached(department, "physics.collider requested NotAccepted", "physics.lattice requested NotAccepted")
	s.attached(commons, "physics.collider requested NotAccepted")
	s.mergeAs(labtest.AssemblyOwner, "genomes gives up its share", gittest.Commit{Remove: []string{pathOf(s, genomesShare)}})
	s.mergeAs(labtest.TenantOwner, "delete the department", gittest.Commit{Remove: []string{departmentFile, latticeTerms, colliderTerms}})
	s.mergeAs(labtest.Administrator, "delete the commons", gittest.Commit{Remove: []string{campusRuntimeFile, guestTerms}})
	for _, key := range []schema.Key{department, commons} {
		require.NoError(s, s.untilGone(s.Context(), key))
		left, err := s.remains(s.Context(), key, cluster.Name(key))
		require.NoError(s, err)
		require.Empty(s, left)
	}
	databases := s.on("dev-lab-1", "cd "+profile.DatabaseData+" && echo slurm*")
	require.Equal(s, profile.Stack{Cluster: cluster.Name(labtest.Train)}.Database().Name(), databases)
	for _, n := range s.nodes {
		users := s.on(n.Name, "cut -d: -f1 /etc/passwd")
		require.NotContains(s, users, "carl")
		require.NotContains(s, users, "dora")
	}
}

// checkEvents verifies the events of both runtimes and their attachments, with the ids of both.
func (s *sharing) checkEvents() {
	s.Helper()
	got := map[string][]string{}
	for _, e := range s.told() {
		kind, ok := strings.CutPrefix(e.EventType, "apps.shared_runtime.")
		if !ok {
			continue
		}
		var p map[string]string
		require.NoError(s, json.Unmarshal(e.Payload, &p))
		require.NotEmpty(s, e.CorrelationID)
		id := p["shared_runtime_id"]
		if kind, ok = strings.CutPrefix(kind, "attachment."); ok {
			id += " " + p["attachment_id"] + " " + p["project_id"]
		}
		got[id] = append(got[id], kind)
	}
	// A shared runtime runs once more after each change.
	running := func(times int) []string { return slices.Repeat([]string{"running"}, times) }
	end := []string{"deleting", "deleted"}
	life := []string{"requested", "attached", "detached", "requested"}
	require.Equal(s, map[string][]string{
		"sr-physics":                              slices.Concat([]string{"requested"}, running(8), end),
		"sr-physics at-lattice physics.lattice":   life,
		"sr-physics at-collider physics.collider": life,
		"commons":                              slices.Concat([]string{"requested", "failed"}, running(4), end),
		"commons at-collider physics.collider": life,
		"commons at-genomes biology.genomes":   {"requested", "failed", "attached", "detached"},
	}, got)
}

// TestLongSharedRuntimeSurvivesKills kills the daemon at each step of attach, terms and detach: as the
// control host begins each request that changes something there, and after what the daemon logs.
func TestLongSharedRuntimeSurvivesKills(t *testing.T) {
	parts := explore.Draw(t, 1, []string{"attach and terms at each request", "detach at each odd request", "detach at each even request",
		"after each log line"})
	play := func(name string, f func(*killed)) {
		if !slices.Contains(parts, name) {
			return
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKilled(t, hosttest.Image())
			for _, name := range []string{"attach", "narrow", "widen", "detach"} {
				k.change(name, moment{})
			}
			f(k)
		})
	}
	play("attach and terms at each request", func(k *killed) {
		narrows := true
		for n := 1; k.change("attach", moment{effect: n}); n++ {
			if narrows {
				narrows = k.change("narrow", moment{effect: n})
				k.change("widen", moment{})
			}
			k.change("detach", moment{})
		}
	})
	detach := func(from int) func(*killed) {
		return func(k *killed) {
			k.change("attach", moment{})
			for n := from; k.change("detach", moment{effect: n}); n += 2 {
				k.change("attach", moment{})
			}
		}
	}
	play("detach at each odd request", detach(1))
	play("detach at each even request", detach(2))
	play("after each log line", func(k *killed) {
		draw := rand.New(rand.NewPCG(explore.Seed(t), 0))
		random := func(most time.Duration) time.Duration { return time.Duration(draw.Int64N(int64(most))) }
		for _, line := range []string{decided, applying, ended, `"to":"running"`} {
			k.change("attach", moment{line: line})
			k.change("narrow", moment{line: line})
			k.change("widen", moment{line: applying, delay: random(1500 * time.Millisecond)})
			k.change("detach", moment{line: line})
		}
		for range 3 {
			k.change("attach", moment{line: applying, delay: random(4 * time.Second)})
			k.change("detach", moment{line: applying, delay: random(8 * time.Second)})
		}
	})
}

// Requirements B5, D1 to D4, D7: a tenant's shared runtime and the platform's one on real Slurm, with
// three projects of two tenants, beside a project-scoped instance that stays untouched. Each
// step is a pull request of people with the permission for it.
func TestLongSharedRuntimesOnRealSlurm(t *testing.T) {
	t.Parallel()
	s := newSharing(t, hosttest.Image())
	delete(s.config.more, "authority") // everybody needs the permission for what they change
	s.serve()
	step := func(name string, f func()) {
		t.Helper()
		t.Log(name)
		f()
	}
	step("deploy, attach and lend", s.shareRuntimes)
	s.ready(labtest.Train)
	beside, err := s.fingerprint(t.Context(), labtest.Train)
	require.NoError(t, err)
	step("jobs of each project", s.runJobs)
	step("a job over a limit is refused and explained", s.refuseOverLimit)
	step("terms become narrower and wider", s.changeTerms)
	step("a node is taken back under a job", s.takeNodeBack)
	step("projects are detached with jobs", s.detachProjects)
	step("the runtimes are deleted", s.deleteRuntimes)

	now, err := s.fingerprint(t.Context(), labtest.Train)
	require.NoError(t, err)
	require.Equal(t, beside, now, "the instance beside the shared runtimes was touched")
	s.asDeclared(labtest.Train)
	s.checkEvents()
	require.Empty(t, s.forge.Violations())
	linesFoundByIDs(t, filepath.Join(s.dir, "berth.log"), "")
}
