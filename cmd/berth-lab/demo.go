package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/labtest"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes/slurm/slurmtest"
)

func newDemoCmd() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the end-to-end demo on a temporary estate",
		Long: `Run the end-to-end demo on a temporary estate: start a lab, open a pull request
with mistakes, correct and merge it, run a GPU job on the new cluster with berth queue, add a worker, drain it and resume it,
show a change that policy denies and one that its author may not make, delete the
cluster, share another one between two projects, explain a refused job, delete
everything, and read the audit log.

Every step is verified. The exit status is 0 only if all steps succeed. The logs are
kept in the directory that the first lines name. Without root or without Slurm, the
demo runs on the memory runtime.`,
		Example: `  berth-lab demo
  berth-lab demo --memory --dir /tmp/demo`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().StringVar(&o.dir, "dir", "", "directory for the logs and the temporary estate (default: a new temporary directory)")
	cmd.Flags().StringVar(&o.berth, "berth", "", "berth binary (default: beside berth-lab)")
	cmd.Flags().StringVar(&o.helper, "helper", "", "berth-host binary (default: beside berth-lab)")
	cmd.Flags().BoolVar(&o.memory, "memory", false, "run instances in memory, without a lab")
	cmd.Flags().DurationVar(&o.patience, "patience", 0, "minimum time limit of each step, for a slow machine (default: 20 s to a minute)")
	return cmd
}

type demoOptions struct {
	dir, berth, helper, image string
	memory                    bool
	patience                  time.Duration
}

// demo is a running demo.
type demo struct {
	*stage
	out     io.Writer
	begun   time.Time
	step    int
	figures []figure

	deployment string        // correlation id of the change that created train
	running    slurmtest.Job // started before train grows; no later step may affect it
}

// figure is a measured time or size, with its goal.
type figure struct {
	what        string
	value, goal float64
	unit        string
}

func (f figure) ok() bool { return f.value <= f.goal }

func runDemo(ctx context.Context, out io.Writer, o demoOptions) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute+5*o.patience)
	defer cancel()
	d := &demo{out: out, begun: time.Now()}
	why := ""
	if !o.memory {
		why = labImpossible(ctx)
		o.memory = why != ""
	}
	switch {
	case why != "":
		d.print("Berth demo on the memory runtime, without hosts and without Slurm: %s.", why)
	case o.memory:
		d.print("Berth demo on the memory runtime, without hosts and without Slurm, as asked.")
	default:
		d.print("Berth demo: real Slurm on lab hosts of this machine.")
	}
	if o.berth, err = program(o.berth, "berth"); err != nil {
		return err
	}
	if !o.memory {
		if o.helper, err = program(o.helper, "berth-host"); err != nil {
			return err
		}
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "berth-demo-"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	d.print("Full logs: %s", o.dir)

	d.stage, err = newStage(o)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := d.stage.close(); err == nil {
			err = closeErr
		}
		if err != nil {
			d.print("\nFAILED after %.1f s: %v", time.Since(d.begun).Seconds(), err)
			d.print("End of the daemon's log:\n%s", indent(lastLines(filepath.Join(o.dir, "berth.log"), 12)))
			d.print("Full logs: %s", o.dir)
		}
	}()
	for _, act := range []func(context.Context){
		d.setUp, d.neighbour, d.mistakes, d.correction, d.deploy, d.job, d.addWorker, d.operate,
		d.denyByPolicy, d.mergeWithoutPermission, d.revert, d.remove, d.share, d.explainRefusal, d.readAuditLog, d.measure, d.tearDown,
	} {
		if err := attempt(func() { act(ctx) }); err != nil {
			return err
		}
	}
	d.summary()
	return nil
}

// failure ends a step of the demo; see attempt.
type failure struct{ error }

// ensure ends the step if there is an error.
func ensure(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must is ensure for a call that also returns a value.
func must[T any](v T, err error) T {
	ensure(err)
	return v
}

// verify ends the step unless a statement holds.
func verify(ok bool, format string, args ...any) {
	if !ok {
		ensure(fmt.Errorf(format, args...))
	}
}

// attempt runs a step, and returns the error that ended it.
func attempt(step func()) (err error) {
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case failure:
			err = failed.error
		default:
			panic(failed)
		}
	}()
	step()
	return nil
}

func (d *demo) print(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// title prints the title of the next step.
func (d *demo) title(format string, args ...any) {
	d.step++
	d.print("\n%2d. %s   [%.1f s]", d.step, fmt.Sprintf(format, args...), time.Since(d.begun).Seconds())
}

func (d *demo) say(format string, args ...any) { d.print("    "+format, args...) }

func (d *demo) show(text string) { d.print("%s", indent(strings.TrimRight(text, "\n"))) }

func indent(s string) string { return "      │ " + strings.ReplaceAll(s, "\n", "\n      │ ") }

func (d *demo) measured(what string, took time.Duration, goal float64) {
	d.figures = append(d.figures, figure{what, took.Seconds(), goal, "s"})
	d.say("→ %s: %.2f s", what, took.Seconds())
}

func (d *demo) setUp(ctx context.Context) {
	d.title("An estate in Git, a forge, %s and the daemon", d.hostsName())
	start := time.Now()
	if !d.memory {
		ensure(d.labUp(ctx))
		d.say("the lab: %d hosts with sshd, addresses and GPUs of their own, in %.1f s", len(d.nodes), time.Since(start).Seconds())
	}
	ensure(d.remote.open(d.dir, d.files))
	d.say("the estate: %s, from examples/lab", d.forge.CloneURL())
	ensure(d.startDaemon(ctx))
	d.say("the daemon: berth serve -c %s, ready", filepath.Join(d.dir, "berth.yaml"))
	d.say("→ set up in %.1f s", time.Since(start).Seconds())
}

// neighbour creates an instance of another tenant, which runs during the demo.
func (d *demo) neighbour(ctx context.Context) {
	d.title("Another tenant's instance, assembly, on the same controller")
	n := must(d.propose("add-assembly", "assembly: one worker", labtest.AssemblyOwner,
		gittest.Commit{Files: map[string]string{labtest.AssemblyFile: labtest.AssemblyYAML()}}))
	must(d.merge(ctx, n, labtest.AssemblyOwner))
	s := must(d.untilPhase(ctx, labtest.Assembly, plan.PhaseRunning))
	d.members(s)
}

func (d *demo) mistakes(ctx context.Context) {
	d.title("A pull request with two mistakes")
	wrong := strings.NewReplacer("display_name:", "dislpay_name:", "count: 2 # workers",
		"count: two").Replace(labtest.InstanceYAML("train", 2))
	d.show(wrong)
	start := time.Now()
	d.pull = must(d.propose("add-train", "Add the instance train", labtest.ProjectAdmin,
		gittest.Commit{Files: map[string]string{labtest.TrainFile: wrong}}))
	check := must(d.untilCheck(ctx, "add-train", "failure"))
	d.say("the check %s: %s — %s", check.name, check.conclusion, check.title)
	d.show(strings.Join(check.annotations, "\n"))
	verify(len(check.annotations) >= 2, "the check shows %d findings, not both mistakes", len(check.annotations))
	d.say("→ from push to failing check: %.2f s", time.Since(start).Seconds())
}

func (d *demo) correction(ctx context.Context) {
	d.title("Corrected: the check passes, and a comment shows the plan")
	start := time.Now()
	right := train(2)
	right.Message = "train: spelt right"
	ensure(d.push("add-train", labtest.ProjectAdmin, right))
	must(d.untilCheck(ctx, "add-train", "success"))
	body := must(d.untilComment(ctx, d.pull, "Creates `"))
	d.measured("corrected PR to check and comment", time.Since(start), 2)
	d.show(body)
}

func (d *demo) deploy(ctx context.Context) {
	d.title("Merged: the cluster is deployed")
	start := time.Now()
	must(d.merge(ctx, d.pull, labtest.ProjectAdmin))
	s := must(d.untilPhase(ctx, labtest.Train, plan.PhaseRunning))
	d.measured("merge to running with 2 workers, from nothing", time.Since(start), 15)
	d.deployment = s.CorrelationID
	d.members(s)
	body := must(d.untilComment(ctx, d.pull, "1 instance running"))
	d.say("the comment now begins:")
	d.show(firstLines(body, 12))
}

func (d *demo) addWorker(ctx context.Context) {
	d.title("A pull request that adds a worker while a job runs")
	if !d.memory {
		d.running = must(d.startJob(ctx, labtest.Train, "#!/bin/sh\nsleep 12\n"))
	}
	n := must(d.propose("more-train", "train: a third worker", labtest.ProjectAdmin, train(3)))
	body := must(d.untilComment(ctx, n, "adds `worker-2`"))
	d.show(firstLines(body, 14))
	start := time.Now()
	must(d.merge(ctx, n, labtest.ProjectAdmin))
	ensure(d.untilWorkers(ctx, 3))
	d.measured("worker added", time.Since(start), 5)
	s := must(d.status(ctx, labtest.Train))
	d.members(s)
	if d.memory {
		return
	}
	ensure(d.stillRunning(ctx, labtest.Train, d.running))
	d.say("job %s was not interrupted", d.running.ID)
}

func (d *demo) remove(ctx context.Context) {
	d.title("A pull request that deletes the instance")
	cluster := ""
	if !d.memory {
		var err error
		cluster, _, err = d.clusterOf(ctx, labtest.Train)
		ensure(err)
	}
	before := must(d.fingerprint(ctx, labtest.Assembly))
	n := must(d.propose("drop-train", "Remove the instance train", labtest.ProjectAdmin,
		gittest.Commit{Remove: []string{labtest.TrainFile}}))
	body := must(d.untilComment(ctx, n, "Deletes `"))
	d.show(firstLines(body, 12))
	start := time.Now()
	must(d.merge(ctx, n, labtest.ProjectAdmin))
	ensure(d.untilGone(ctx, labtest.Train))
	d.measured("deleted", time.Since(start), 10)
	left := must(d.remains(ctx, labtest.Train, cluster))
	verify(len(left) == 0, "files or processes of train are left: %s", strings.Join(left, ", "))
	d.say("no file or process of it is left on any host")
	after := must(d.fingerprint(ctx, labtest.Assembly))
	verify(before == after, "assembly was affected:\n%s\nbecame\n%s", before, after)
	if d.memory {
		d.say("assembly keeps running")
	} else {
		d.say("assembly keeps running: same processes, same start times")
	}
}

func (d *demo) measure(ctx context.Context) {
	d.title("Memory and disk")
	rss := must(residentMiB(d.daemon.cmd.Process.Pid))
	d.figures = append(d.figures, figure{"daemon's memory", rss, 150, "MiB"})
	d.say("the daemon: %.0f MiB resident", rss)
	if d.memory {
		return
	}
	info := must(os.Stat(d.helper))
	d.figures = append(d.figures, figure{"berth-host on disk", float64(info.Size()) / 1e6, 10, "MB"})
	rss = must(d.helperMiB(ctx))
	d.figures = append(d.figures, figure{"berth-host's memory, the largest", rss, 15, "MiB"})
	d.say("berth-host: %.1f MB on disk, %.1f MiB resident", float64(info.Size())/1e6, rss)
}

func (d *demo) tearDown(ctx context.Context) {
	d.title("Delete everything")
	shared := must(d.propose("drop-commons", "The shared cluster is no longer needed", labtest.Administrator,
		gittest.Commit{Remove: []string{commonsFile, latticeFile, genomesFile}}))
	must(d.merge(ctx, shared, labtest.Administrator))
	ensure(d.untilGone(ctx, labtest.Commons))
	n := must(d.propose("drop-assembly", "assembly: no longer needed", labtest.AssemblyOwner,
		gittest.Commit{Remove: []string{labtest.AssemblyFile}}))
	must(d.merge(ctx, n, labtest.AssemblyOwner))
	ensure(d.untilGone(ctx, labtest.Assembly))
	violations := d.forge.Violations()
	verify(len(violations) == 0, "the forge was misused:\n%s", strings.Join(violations, "\n"))
	ensure(d.close())
	if d.memory {
		d.say("the daemon ended")
	} else {
		d.say("the daemon ended, the lab is down: no process, mount, namespace or user is left")
	}
	d.figures = append(d.figures, figure{"the whole demo", time.Since(d.begun).Seconds(), 90, "s"})
}

func (d *demo) summary() {
	d.print("\n    %-46s %9s   %s", "figure", "measured", "goal")
	for _, f := range d.figures {
		mark := ""
		if !f.ok() {
			mark = "   over the goal"
		}
		d.print("    %-46s %5.2f %-3s ≤ %g %s%s", f.what, f.value, f.unit, f.goal, f.unit, mark)
	}
	d.print("\nEvery step was verified. Full logs: %s", d.dir)
}

// members prints the node of each member, and why it was placed there.
func (d *demo) members(s *plan.Status) {
	var b strings.Builder
	for _, m := range s.Members {
		fmt.Fprintf(&b, "%-14s %-12s %-9s %s\n", m.Name, m.Node, m.State, m.Placed)
	}
	d.show(b.String())
}

func firstLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = append(lines[:n], "…")
	}
	return strings.Join(lines, "\n")
}

func lastLines(file string, n int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
