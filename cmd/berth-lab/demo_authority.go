package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/labtest"
	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/runtimes/slurm/slurmtest"
)

// Steps of the demo about permissions, policy and the audit log.

// denyByPolicy: a change that policy denies fails the check.
func (d *demo) denyByPolicy(ctx context.Context) error {
	d.title("A pull request that asks for more GPUs than policy allows physics")
	n, err := d.propose("too-much-train", "train: a fourth worker", labtest.ProjectAdmin, train(4))
	if err != nil {
		return err
	}
	check, err := d.untilCheck(ctx, "too-much-train", "failure")
	if err != nil {
		return err
	}
	d.showCheck(check)
	const policy = "tenants/physics/policy.yaml"
	limit, err := lineOf(d.files[policy], "max_gpus_per_instance:")
	if err != nil {
		return fmt.Errorf("%s: %w", policy, err)
	}
	asked, err := lineOf(labtest.InstanceYAML(labtest.Train.Name, 4), "roles:")
	if err != nil {
		return err
	}
	want := []string{fmt.Sprintf("%s:%d:", labtest.TrainFile, asked), "asks for 8 GPUs, at most 6", fmt.Sprintf("%s:%d", policy, limit)}
	if len(check.annotations) != 1 || !containsAll(check.annotations[0], want) {
		return fmt.Errorf("the check does not say %q", want)
	}
	d.say("the limit is set in %s:%d; the pull request is closed", policy, limit)
	return d.forge.ClosePull(n)
}

// mergeWithoutPermission: a user without the permission merges against the check. Berth changes nothing.
func (d *demo) mergeWithoutPermission(ctx context.Context) error {
	d.title("%s removes two workers without the permission, and merges against the check", labtest.ProjectMember)
	n, err := d.propose("less-train", "train: one worker is enough", labtest.ProjectMember, train(1))
	if err != nil {
		return err
	}
	check, err := d.untilCheck(ctx, "less-train", "failure")
	if err != nil {
		return err
	}
	d.showCheck(check)
	d.show(firstLines(check.summary, 5))
	if !containsAll(check.summary, []string{labtest.TrainFile, "apps.instance.update", labtest.ProjectMember, labtest.ProjectAdmin}) {
		return fmt.Errorf("the check does not say that %s lacks apps.instance.update and %s has it", labtest.ProjectMember, labtest.ProjectAdmin)
	}
	before, err := d.fingerprint(ctx, labtest.Train)
	if err != nil {
		return err
	}
	commit, err := d.merge(ctx, n, labtest.ProjectMember)
	if err != nil {
		return err
	}
	rev, err := d.decided(ctx, commit)
	if err != nil {
		return err
	}
	if len(rev.Held) != 1 || rev.Held[0].File != labtest.TrainFile || rev.Held[0].Reason != "unauthorised" {
		return fmt.Errorf("held is not just %s as unauthorised: %+v", labtest.TrainFile, rev.Held)
	}
	if err := d.untilAuthorized(ctx, "False"); err != nil {
		return err
	}
	d.say("revision.yaml on %s: held, %s:", reconciler.BranchStatus, rev.Held[0].Reason)
	d.show(rev.Held[0].File + "\n" + rev.Held[0].Message)
	if err := d.verifyDifference("M\t" + labtest.TrainFile); err != nil {
		return err
	}
	return d.verifySameProcesses(ctx, before)
}

// revert: restoring the version in force needs no permission.
func (d *demo) revert(ctx context.Context) error {
	d.title("%s reverts the change, which needs no permission", labtest.ProjectMember)
	before, err := d.fingerprint(ctx, labtest.Train)
	if err != nil {
		return err
	}
	n, err := d.propose("revert-less-train", `Revert "train: one worker is enough"`, labtest.ProjectMember, train(3))
	if err != nil {
		return err
	}
	check, err := d.untilCheck(ctx, "revert-less-train", "success")
	if err != nil {
		return err
	}
	d.showCheck(check)
	commit, err := d.merge(ctx, n, labtest.ProjectMember)
	if err != nil {
		return err
	}
	rev, err := d.decided(ctx, commit)
	if err != nil {
		return err
	}
	if len(rev.Held) > 0 {
		return fmt.Errorf("still held: %+v", rev.Held)
	}
	if err := d.untilAuthorized(ctx, "True"); err != nil {
		return err
	}
	d.say("no document is held")
	if err := d.verifyDifference(""); err != nil {
		return err
	}
	if err := d.verifySameProcesses(ctx, before); err != nil || d.memory {
		return err
	}
	job, err := d.untilJob(ctx, labtest.Train, d.running.ID, slurmtest.Completed)
	if err != nil {
		return err
	}
	if !sameRun(job, d.running) {
		return fmt.Errorf("job %s was affected: %+v became %+v", job.ID, d.running, job)
	}
	d.say("job %s, started before, ended: %s", job.ID, job.Detail)
	return nil
}

// readAuditLog verifies and reads the audit log on a clone.
func (d *demo) readAuditLog(ctx context.Context) error {
	d.title("The audit log on a clone, and the trace of the deployment")
	clone := filepath.Join(d.dir, "clone.git")
	if out, err := exec.CommandContext(ctx, "git", "clone", "--quiet", "--bare", d.git.URL, clone).CombinedOutput(); err != nil {
		return fmt.Errorf("git clone: %w: %s", err, out)
	}
	for _, look := range []struct {
		args []string
		says []string // that the output must have
	}{
		{[]string{"audit", "verify"}, []string{"whole: "}},
		{[]string{"audit", "list", "--actor", labtest.ProjectMember}, []string{"denied", "apps.instance.update"}},
		{[]string{"audit", "list", "--actor", labtest.ProjectAdmin}, []string{"apps.instance.create", "apps.instance.update", "apps.instance.delete"}},
		{[]string{"trace", d.deployment}, []string{"add-train", labtest.ProjectAdmin, "apps.instance.create", "runtime.create", "apps.instance.running"}},
	} {
		args := append(slices.Clone(look.args), "--repo", clone)
		out, err := exec.CommandContext(ctx, d.berth, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("berth %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		d.say("berth %s", strings.Join(look.args, " "))
		d.show(string(out))
		if !containsAll(string(out), look.says) {
			return fmt.Errorf("berth %s does not say %q", strings.Join(args, " "), look.says)
		}
	}
	return nil
}

func (d *demo) showCheck(c checkSeen) {
	d.say("the check %s: %s — %s", c.name, c.conclusion, c.title)
	if len(c.annotations) > 0 {
		d.show(strings.Join(c.annotations, "\n"))
	}
}

// decided waits until a commit of main is decided.
func (s *stage) decided(ctx context.Context, commit string) (rev reconciler.Revision, err error) {
	err = s.until(ctx, "the commit "+cli.ShortCommit(commit)+" is decided", 20*time.Second, func() (bool, error) {
		tree, err := s.statusTree(ctx)
		rev = tree.Revision
		return rev.Commit == commit, err
	})
	return rev, err
}

// untilAuthorized waits until the condition Authorized of train has a status.
func (s *stage) untilAuthorized(ctx context.Context, status string) error {
	return s.until(ctx, fmt.Sprintf("%s: Authorized=%s", labtest.Train, status), 20*time.Second, func() (bool, error) {
		st, err := s.status(ctx, labtest.Train)
		return err == nil && slices.ContainsFunc(st.Conditions, func(c plan.Condition) bool {
			return c.Type == "Authorized" && c.Status == status
		}), err
	})
}

// verifyDifference verifies the difference between main and berth/in-force.
func (d *demo) verifyDifference(want string) error {
	diff, err := d.git.Git("diff", "--name-status", reconciler.BranchInForce, "main")
	if err != nil {
		return err
	}
	if diff != want {
		return fmt.Errorf("main differs from what is in force by %q, not %q", diff, want)
	}
	if diff == "" {
		d.say("git diff --name-status %s main: no difference", reconciler.BranchInForce)
		return nil
	}
	d.say("git diff --name-status %s main", reconciler.BranchInForce)
	d.show(diff)
	return nil
}

// verifySameProcesses verifies that the daemons of train are the same processes as before.
func (d *demo) verifySameProcesses(ctx context.Context, before string) error {
	after, err := d.fingerprint(ctx, labtest.Train)
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("train was affected:\n%s\nbecame\n%s", before, after)
	}
	st, err := d.status(ctx, labtest.Train)
	if err != nil {
		return err
	}
	if n := countRunning(st); n != 4 {
		return fmt.Errorf("train has %d running members, not a controller and 3 workers", n)
	}
	if d.memory {
		d.say("train keeps running with 3 workers")
	} else {
		d.say("train keeps running with 3 workers: same processes, same start times")
	}
	return nil
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
