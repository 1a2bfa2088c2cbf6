package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"berth/cmd/internal/labtest"
	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// Steps of the demo about permissions, policy and the audit log.

// denyByPolicy: a change that policy denies fails the check.
func (d *demo) denyByPolicy(ctx context.Context) {
	d.title("A pull request that asks for more GPUs than policy allows physics")
	n := must(d.propose("too-much-train", "train: a fourth worker", labtest.ProjectAdmin, train(4)))
	check := must(d.untilCheck(ctx, "too-much-train", "failure"))
	d.showCheck(check)
	const policy = "tenants/physics/policy.yaml"
	limit, err := lineOf(d.files[policy], "max_gpus_per_instance:")
	verify(err == nil, "%s: %w", policy, err)
	asked := must(lineOf(labtest.InstanceYAML(labtest.Train.Name, 4), "roles:"))
	want := []string{fmt.Sprintf("%s:%d:", labtest.TrainFile, asked), "asks for 8 GPUs, at most 6", fmt.Sprintf("%s:%d", policy, limit)}
	verify(len(check.annotations) == 1 && containsAll(check.annotations[0], want), "the check does not say %q", want)
	d.say("the limit is set in %s:%d; the pull request is closed", policy, limit)
	ensure(d.forge.ClosePull(n))
}

// mergeWithoutPermission: a user without the permission merges against the check. Berth changes nothing.
func (d *demo) mergeWithoutPermission(ctx context.Context) {
	d.title("%s removes two workers without the permission, and merges against the check", labtest.ProjectMember)
	n := must(d.propose("less-train", "train: one worker is enough", labtest.ProjectMember, train(1)))
	check := must(d.untilCheck(ctx, "less-train", "failure"))
	d.showCheck(check)
	d.show(firstLines(check.summary, 5))
	verify(containsAll(check.summary, []string{labtest.TrainFile, "apps.instance.update", labtest.ProjectMember, labtest.ProjectAdmin}),
		"the check does not say that %s lacks apps.instance.update and %s has it", labtest.ProjectMember, labtest.ProjectAdmin)
	before := must(d.fingerprint(ctx, labtest.Train))
	commit := must(d.merge(ctx, n, labtest.ProjectMember))
	rev := must(d.decided(ctx, commit))
	verify(len(rev.Held) == 1 && rev.Held[0].File == labtest.TrainFile && rev.Held[0].Reason == schema.HeldUnauthorised,
		"held is not just %s as unauthorised: %+v", labtest.TrainFile, rev.Held)
	ensure(d.untilAuthorized(ctx, plan.ConditionFalse))
	d.say("revision.yaml on %s: held, %s:", reconciler.BranchStatus, rev.Held[0].Reason)
	d.show(rev.Held[0].File + "\n" + rev.Held[0].Message)
	d.verifyDifference("M\t" + labtest.TrainFile)
	d.verifySameProcesses(ctx, before)
}

// revert: restoring the version in force needs no permission.
func (d *demo) revert(ctx context.Context) {
	d.title("%s reverts the change, which needs no permission", labtest.ProjectMember)
	before := must(d.fingerprint(ctx, labtest.Train))
	n := must(d.propose("revert-less-train", `Revert "train: one worker is enough"`, labtest.ProjectMember, train(3)))
	check := must(d.untilCheck(ctx, "revert-less-train", "success"))
	d.showCheck(check)
	commit := must(d.merge(ctx, n, labtest.ProjectMember))
	rev := must(d.decided(ctx, commit))
	verify(len(rev.Held) == 0, "still held: %+v", rev.Held)
	ensure(d.untilAuthorized(ctx, plan.ConditionTrue))
	d.say("no document is held")
	d.verifyDifference("")
	if d.verifySameProcesses(ctx, before); d.memory {
		return
	}
	job := must(d.untilJob(ctx, labtest.Train, d.running.ID, slurmtest.Completed))
	verify(sameRun(job, d.running), "job %s was affected: %+v became %+v", job.ID, d.running, job)
	d.say("job %s, started before, ended: %s", job.ID, job.Detail)
}

// readAuditLog verifies and reads the audit log on a clone, and the usage of the deleted instance.
func (d *demo) readAuditLog(ctx context.Context) {
	d.title("The audit log and the usage on a clone, and the trace of the deployment")
	clone := filepath.Join(d.dir, "clone.git")
	out, err := exec.CommandContext(ctx, "git", "clone", "--quiet", "--bare", d.git.URL, clone).CombinedOutput()
	verify(err == nil, "git clone: %w: %s", err, out)
	type look struct {
		args []string
		says []string // that the output must have
	}
	looks := []look{
		{[]string{"audit", "verify"}, []string{"whole: "}},
		{[]string{"audit", "list", "--actor", labtest.ProjectMember}, []string{"denied", "apps.instance.update"}},
		{[]string{"audit", "list", "--actor", labtest.ProjectAdmin},
			[]string{"apps.instance.create", "apps.instance.update", "apps.instance.delete"}},
		{[]string{"trace", d.deployment},
			[]string{"add-train", labtest.ProjectAdmin, "apps.instance.create", "runtime.create", "apps.instance.running"}},
	}
	if !d.memory { // which runs no jobs
		looks = append(looks, look{[]string{"usage"}, []string{labtest.Train.String(), "GPU HOURS"}})
	}
	for _, look := range looks {
		args := append(slices.Clone(look.args), "--repo", clone)
		out, err := exec.CommandContext(ctx, d.berth, args...).CombinedOutput()
		verify(err == nil, "berth %s: %w\n%s", strings.Join(args, " "), err, out)
		d.say("berth %s", strings.Join(look.args, " "))
		d.show(string(out))
		verify(containsAll(string(out), look.says), "berth %s does not say %q", strings.Join(args, " "), look.says)
	}
}

func (d *demo) showCheck(c checkSeen) {
	d.say("the check %s: %s — %s", c.name, c.conclusion, c.title)
	if len(c.annotations) > 0 {
		d.show(strings.Join(c.annotations, "\n"))
	}
}

// verifyDifference verifies the difference between main and berth/in-force.
func (d *demo) verifyDifference(want string) {
	diff := must(d.git.Git("diff", "--name-status", reconciler.BranchInForce, "main"))
	verify(diff == want, "main differs from what is in force by %q, not %q", diff, want)
	if diff == "" {
		d.say("git diff --name-status %s main: no difference", reconciler.BranchInForce)
		return
	}
	d.say("git diff --name-status %s main", reconciler.BranchInForce)
	d.show(diff)
}

// verifySameProcesses verifies that the daemons of train are the same processes as before.
func (d *demo) verifySameProcesses(ctx context.Context, before string) {
	after := must(d.fingerprint(ctx, labtest.Train))
	verify(before == after, "train was affected:\n%s\nbecame\n%s", before, after)
	st := must(d.status(ctx, labtest.Train))
	n := countRunning(st)
	verify(n == 4, "train has %d running members, not a controller and 3 workers", n)
	if d.memory {
		d.say("train keeps running with 3 workers")
	} else {
		d.say("train keeps running with 3 workers: same processes, same start times")
	}
}

// lineOf returns the number of the first line with a word.
func lineOf(text, word string) (int, error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if strings.Contains(line, word) {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no line has %s", word)
}

func containsAll(s string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(s, w) })
}
