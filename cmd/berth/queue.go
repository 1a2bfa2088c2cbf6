package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/remote"
	"berth/schema/queue"
)

const queueExit = `

The daemon is $BERTH_SERVER or --server; your token is in $BERTH_TOKEN or --token-file.

Exit status: 0, 1 denied or failed, 2 usage.`

func newQueueCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Submit, list, read and cancel jobs of an instance, and show whether its queue serves",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newQueueSubmitCmd(), newQueueListCmd(), newQueueGetCmd(), newQueueCancelCmd(), newQueueOutputCmd(),
		newQueueReadinessCmd())
	return cmd
}

// queueFlags are those of all commands of a queue.
type queueFlags struct {
	server remote.Server
	output cli.Output
}

func (q *queueFlags) add(cmd *cobra.Command) {
	q.server.Flags(cmd)
	q.output.TableFlags(cmd)
}

// send sends a request with an idempotency key and decodes the answer. The error of a refused request ends with refused. That of
// one which may have had its effect ends with unsure and with the call that tells.
func (q *queueFlags) send(ctx context.Context, r remote.Request, answer any, refused, unsure string) error {
	_, err := q.server.Do(ctx, r, answer)
	switch unsent := new(cli.ExitError); {
	case err == nil:
		return nil
	case remote.IsRefusal(err):
		return fmt.Errorf("%w\n%s", err, refused)
	case errors.As(err, &unsent):
		return err
	}
	return fmt.Errorf("%w\n%s, repeat the call with --key %s", err, unsure, r.Key)
}

func newQueueSubmitCmd() *cobra.Command {
	var flags queueFlags
	var req queue.Request
	var key string
	cmd := &cobra.Command{
		Use:   "submit TENANT.PROJECT/INSTANCE [SCRIPT]",
		Short: "Submit a batch job as your own Unix user",
		Long: `Submit the script as a job of the project, and print the job. The script is read from
standard input unless a file is named, and goes to the scheduler as it is. The job
runs as the Unix user that roles.yaml gives you.

A request without an answer is sent again with the same idempotency key, so that it never
makes a second job. With --key you choose the key yourself, and a later call with it
prints the same job.` + queueExit,
		Example: `  berth queue submit physics.lattice/train job.sh --gpus 2 --time 60
  berth queue submit physics.lattice/train --key nightly-2026-11-24 < job.sh`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := remote.ParsePlace(args[0])
			if err != nil {
				return err
			}
			if req.Script, err = readScript(cmd.InOrStdin(), args[1:]); err != nil {
				return err
			}
			if len(args) > 1 && args[1] != "-" {
				req.ScriptName = scriptName(args[1])
			}
			if req.Script == "" && len(args) == 1 {
				return cli.Usage(errors.New("queue submit: standard input is empty: name the file of the script, or give the script there"))
			}
			key = cmp.Or(key, queue.NewKey(time.Now(), rand.Text()))
			if err := errors.Join(queue.CheckKey(key), req.Check()); err != nil {
				return cli.Usage(err)
			}
			var job queue.Job
			r := remote.Request{Method: http.MethodPost, Place: place, Path: "queue/jobs", Key: key, Body: req}
			if err := flags.send(cmd.Context(), r, &job, "this call made no job", "to learn whether the job exists"); err != nil {
				return err
			}
			return flags.output.Print(cmd.OutOrStdout(), jobReport{Format: jobFormat, Job: job})
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "idempotency key; default: a new one")
	f.StringVar(&req.Queue, "queue", "", "requested queue; default: that of the platform's queue map")
	f.StringVar(&req.Name, "name", "", "name of the job; default: that in the script, else the name of the script")
	f.StringVar(&req.WorkDir, "work-dir", "",
		"absolute `directory` where the job runs and writes its output; default: that in the script, else a directory for this user and "+
			"cluster")
	f.Var(&slurmTime{&req.Minutes}, "time", "time limit: minutes, or as sbatch takes it, such as 1:30:00 or 2-0")
	f.IntVar(&req.Nodes, "nodes", 0, "number of nodes")
	f.IntVar(&req.Tasks, "tasks", 0, "number of tasks")
	f.IntVar(&req.CPUsPerTask, "cpus-per-task", 0, "CPUs of each task")
	f.Var(&slurmMemory{&req.MemoryMiB}, "memory", "memory of each node: MiB, or with a unit, such as 16G")
	f.IntVar(&req.GPUs, "gpus", 0, "GPUs of each node")
	return cmd
}

// notInName matches characters that the name of a script does not have at Berth.
var notInName = regexp.MustCompile(`[^-A-Za-z0-9_.]`)

// scriptName is the name of a script's file, with _ for each character that it may not have, x before it unless it
// begins with a letter or digit, and at most 64 characters.
func scriptName(file string) string {
	name := notInName.ReplaceAllString(filepath.Base(file), "_")
	if strings.ContainsAny(name[:1], "-_.") {
		name = "x" + name
	}
	return name[:min(len(name), 64)]
}

// readScript reads the script of a job from a file, or from standard input.
func readScript(stdin io.Reader, file []string) (string, error) {
	if len(file) > 0 && file[0] != "-" {
		f, err := os.Open(file[0])
		if err != nil {
			return "", cli.Usage(err)
		}
		defer f.Close()
		stdin = f
	}
	text, err := io.ReadAll(io.LimitReader(stdin, queue.MaxScript+1))
	return string(text), err
}

// placeCmd returns a command for an instance, or for a job of one.
func placeCmd(
	use, short, long, example string, args int, run func(cmd *cobra.Command, f *queueFlags, place remote.Place, args []string) error,
) *cobra.Command {
	var flags queueFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long + queueExit, Example: example, Args: cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := remote.ParsePlace(args[0])
			if err != nil {
				return err
			}
			if len(args) > 1 && (queue.Ref{JobID: args[1]}).Check() != nil {
				return cli.Usage(fmt.Errorf("%q is not the id of a job, such as 12 or 12_3", args[1]))
			}
			return run(cmd, &flags, place, args[1:])
		},
	}
	flags.add(cmd)
	return cmd
}

func newQueueListCmd() *cobra.Command {
	var state, user string
	var live bool
	cmd := placeCmd("list TENANT.PROJECT/INSTANCE", "List the jobs of the project",
		`List the jobs of the project that the scheduler still has in its memory.`+observedHelp,
		`  berth queue list physics.lattice/train --state pending`, 1,
		func(cmd *cobra.Command, f *queueFlags, place remote.Place, _ []string) error {
			if !slices.Contains(queue.States(), strings.ToUpper(state)) && state != "" {
				return cli.Usage(fmt.Errorf("--state: unknown state %q; choose one of %s", state,
					strings.ToLower(strings.Join(queue.States(), ", "))))
			}
			query := withLive(url.Values{}, live)
			for name, value := range map[string]string{"state": state, "user": user} {
				if value != "" {
					query.Set(name, value)
				}
			}
			list := jobList{Format: "berth.jobs/v1"}
			if _, err := f.server.Do(cmd.Context(), remote.Request{Place: place, Path: "queue/jobs", Query: query}, &list); err != nil {
				return err
			}
			return f.output.PrintLong(cmd.OutOrStdout(), list)
		})
	cmd.Flags().StringVar(&state, "state", "", "only jobs in this state, such as pending")
	cmd.Flags().StringVar(&user, "user", "", "only jobs of this Unix user")
	liveFlag(cmd, &live)
	return cmd
}

// observedHelp ends the help of a command whose answer is an observation.
const observedHelp = `

Berth asks the scheduler at most every 10 seconds, for all who look, and shows when it did.
After your own submit or cancel, and with --live, it asks again.`

// liveFlag adds the flag that asks the scheduler for the answer.
func liveFlag(cmd *cobra.Command, live *bool) {
	cmd.Flags().BoolVar(live, "live", false, "ask the scheduler now")
}

// withLive adds to a query that the scheduler is asked.
func withLive(query url.Values, live bool) url.Values {
	if live {
		query.Set("live", "true")
	}
	return query
}

// submittedFlag adds the flag that names one of two jobs with the same id.
func submittedFlag(cmd *cobra.Command, at *string) {
	cmd.Flags().StringVar(at, "submitted", "", "`time` of submission, as get prints it: only the job with it is meant")
}

func jobQuery(submitted string) url.Values {
	query := url.Values{}
	if submitted != "" {
		query.Set("submitted_at", submitted)
	}
	return query
}

func newQueueGetCmd() *cobra.Command {
	var submitted string
	var live bool
	cmd := placeCmd("get TENANT.PROJECT/INSTANCE JOB", "Show a job of the project",
		`Show a job of the project, also one that has ended.`+observedHelp,
		`  berth queue get physics.lattice/train 12`, 2,
		func(cmd *cobra.Command, f *queueFlags, place remote.Place, args []string) error {
			job := jobReport{Format: jobFormat}
			r := remote.Request{Place: place, Path: "queue/jobs/" + args[0], Query: withLive(jobQuery(submitted), live)}
			if _, err := f.server.Do(cmd.Context(), r, &job); err != nil {
				return err
			}
			return f.output.Print(cmd.OutOrStdout(), job)
		})
	submittedFlag(cmd, &submitted)
	liveFlag(cmd, &live)
	return cmd
}

func newQueueCancelCmd() *cobra.Command {
	var submitted string
	cmd := placeCmd("cancel TENANT.PROJECT/INSTANCE JOB", "Cancel a job of the project",
		`Cancel a job of the project. A job that has ended stays as it is.`, `  berth queue cancel physics.lattice/train 12`, 2,
		func(cmd *cobra.Command, f *queueFlags, place remote.Place, args []string) error {
			var job queue.Job
			r := remote.Request{Method: http.MethodDelete, Place: place, Path: "queue/jobs/" + args[0], Query: jobQuery(submitted)}
			if _, err := f.server.Do(cmd.Context(), r, &job); err != nil {
				return err
			}
			return f.output.Print(cmd.OutOrStdout(), jobReport{Format: jobFormat, Job: job})
		})
	submittedFlag(cmd, &submitted)
	return cmd
}

func newQueueOutputCmd() *cobra.Command {
	var submitted string
	var bytes int
	cmd := placeCmd("output TENANT.PROJECT/INSTANCE JOB", "Print the end of a job's standard output",
		`Print the end of the file with the job's standard output. Berth reads it as the job's user, and
the audit has each call.`, `  berth queue output physics.lattice/train 12 --bytes 4096`, 2,
		func(cmd *cobra.Command, f *queueFlags, place remote.Place, args []string) error {
			query := jobQuery(submitted)
			query.Set("bytes", strconv.Itoa(bytes))
			text, header, err := f.server.Raw(cmd.Context(),
				remote.Request{Place: place, Path: "queue/jobs/" + args[0] + "/output", Query: query})
			if err != nil {
				return err
			}
			if header.Get("X-Output-Truncated") != "" {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "only the last %d bytes\n", len(text))
			}
			if cli.IsTerminal(cmd.OutOrStdout()) {
				text = []byte(cli.VisibleLines(string(text)))
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		})
	submittedFlag(cmd, &submitted)
	cmd.Flags().IntVar(&bytes, "bytes", queue.MaxOutput, "most `bytes` to print")
	return cmd
}

func newQueueReadinessCmd() *cobra.Command {
	return placeCmd("readiness TENANT.PROJECT/INSTANCE", "Show whether the queue takes jobs of the project, and why",
		`Show the mode of the queue map that serves the project, and its preconditions with their
evidence. In mode real-policy the queue takes jobs only while each of them holds; in the
other modes they show what is missing before a change to real-policy.`, `  berth queue readiness physics.lattice/train`, 1,
		func(cmd *cobra.Command, f *queueFlags, place remote.Place, _ []string) error {
			r := readinessReport{Format: "berth.readiness/v1"}
			if _, err := f.server.Do(cmd.Context(), remote.Request{Place: place, Path: "queue/readiness"}, &r.Readiness); err != nil {
				return err
			}
			return f.output.Print(cmd.OutOrStdout(), r)
		})
}

// readinessReport is the JSON of the readiness of a queue.
type readinessReport struct {
	Format string `json:"format"` // berth.readiness/v1
	queue.Readiness
}

// Text implements cli.Report.
func (r readinessReport) Text(p *cli.Page) error {
	serves := "no"
	if r.Serves {
		serves = "yes"
	}
	t := p.Table("FIELD", "VALUE")
	t.Row("serves", serves)
	t.Row("mode", cli.Visible(r.Adapter))
	t.Row("contract", cli.OrDash(r.ContractVersion))
	t.Row("queue map", cli.OrDash(r.QueueMap))
	if err := t.Flush(); err != nil {
		return err
	}
	t = p.Table("PRECONDITION", "HOLDS", "EVIDENCE")
	for _, e := range r.Preconditions {
		holds := "no"
		if e.Holds {
			holds = "yes"
		}
		t.Row(cli.Visible(e.Precondition), holds, cli.Visible(e.Seen))
	}
	return t.Flush()
}

const jobFormat = "berth.job/v1"

// jobReport is the JSON of a job.
type jobReport struct {
	Format string `json:"format"` // berth.job/v1
	queue.Job
	*queue.Observation // nil after submit and cancel, whose answer is of their own moment
}

// Text implements cli.Report.
func (r jobReport) Text(p *cli.Page) error {
	j := r.Job
	t := p.Table("FIELD", "VALUE")
	row := func(name, value string) {
		if value != "" {
			t.Row(name, cli.Visible(value))
		}
	}
	at := func(moment time.Time) string {
		if moment.IsZero() {
			return ""
		}
		return moment.UTC().Format(time.RFC3339)
	}
	row("job", j.JobID)
	row("state", j.State)
	row("reason", j.Reason)
	row("exit code", j.ExitCode)
	row("name", j.Name)
	row("user", j.User)
	row("project", j.ProjectID)
	row("queue", j.Queue)
	row("members", strings.Join(j.Members, ", "))
	row("submitted", at(j.Submitted))
	row("started", at(j.Started))
	row("ended", at(j.Ended))
	row("idempotency key", j.IdempotencyKey)
	row("durability", string(j.Durability))
	if res := j.Resolution; res != nil {
		row("requested queue", cli.OrDash(res.RequestedQueue))
		if res.UsedFallback {
			row("resolved queue", res.ResolvedQueue+" (fallback)")
		}
	}
	if r.Observation != nil {
		row("observed", when(*r.Observation))
	}
	return t.Flush()
}

// when is the time of an observation, and its age.
func when(o queue.Observation) string {
	return fmt.Sprintf("%s, %d s before the answer", cli.Stamp(o.ObservedAt), o.AgeSeconds)
}

// observedTable writes a table, and below it when it was observed, unless a script reads the table.
func observedTable(p *cli.Page, t *cli.Table, o queue.Observation) error {
	if err := t.Flush(); err != nil || !p.HasHeaders() {
		return err
	}
	_, err := fmt.Fprintf(p, "\nobserved %s\n", when(o))
	return err
}

// jobList is the JSON of a list of jobs.
type jobList struct {
	Format string `json:"format"` // berth.jobs/v1
	queue.JobList
}

// Text implements cli.Report.
func (l jobList) Text(p *cli.Page) error {
	t := p.Table("JOB", "STATE", "USER", "NAME", "QUEUE", "GPUS", "MEMBERS", "SUBMITTED", "REASON")
	for _, j := range l.Items {
		t.Row(cli.Visible(j.JobID), cli.Visible(j.State), cli.Visible(j.User), cli.OrDash(j.Name), cli.OrDash(j.Queue),
			strconv.Itoa(j.GPUs),
			cli.OrDash(strings.Join(j.Members, ",")), cli.Stamp(j.Submitted), cli.OrDash(j.Reason))
	}
	return observedTable(p, t, l.Observation)
}
