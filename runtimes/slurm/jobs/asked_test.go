package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema"
	"berth/schema/queue"
)

// many is a host whose squeue and sacct have jobs, and print at most so many. A job is what follows its id in a row.
type many struct {
	comment string // of each job at sacct
	*tools
	jobs  map[string]string // rows by number, without the number at the end
	most  int
	asked []string
}

func (h *many) Host(plan.Member) runtimes.Host { return h }

func (h *many) Do(ctx context.Context, stamp runtimes.Stamp, ops ...runtimes.Op) (all []runtimes.Result, err error) {
	for _, op := range ops {
		if op.Run == nil || op.Run.Program != "squeue" && op.Run.Program != "sacct" {
			res, err := h.tools.Do(ctx, stamp, op)
			if err != nil {
				return nil, err
			}
			all = append(all, res...)
			continue
		}
		line := strings.Join(op.Run.Args, " ")
		ids := slices.Sorted(func(yield func(string) bool) {
			for id := range h.jobs {
				if !yield(id) {
					return
				}
			}
		})
		if _, list, ok := strings.Cut(line, "--jobs="); ok {
			list, _, _ = strings.Cut(list, " ")
			named := strings.Split(list, ",")
			ids = slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(named, id) })
			h.asked = append(h.asked, list)
		}
		if slices.Contains(op.Run.Args, "--format=%A") || slices.Contains(op.Run.Args, "--format=JobID") {
			all = append(all, runtimes.Result{Data: []byte(strings.Join(ids, "\n"))})
			continue
		}
		if len(ids) > h.most {
			return all, &runtimes.OpError{Host: "ctl-7", Op: "run " + op.Run.Program, Code: "output", Message: "printed more than 8 MiB"}
		}
		_, separator, _ := strings.Cut(line, "--delimiter=")
		if separator == "" {
			_, separator, _ = strings.Cut(line, "JobArrayID:")
		}
		separator = separator[:strings.IndexAny(separator, " ,")]
		var rows strings.Builder
		for _, id := range ids {
			values := h.jobs[id] + "|" + id + "|"
			if op.Run.Program == "sacct" {
				values += h.comment + "|"
			}
			rows.WriteString(strings.ReplaceAll(values+"\n", "|", separator))
		}
		all = append(all, runtimes.Result{Data: []byte(rows.String())})
	}
	return all, nil
}

func row(id, state, command string) string {
	return id + "|" + state + "|ada|physics.lattice|main|1795395501|1795395502|1795395503|5|w1|cpu=1,mem=1G,node=1|0|None|n|" + command
}

func queueAt(h runtimes.Hosts) *Queue {
	return New(Options{Hosts: h, Cluster: func(schema.Key) string { return "north" }, Account: func(*plan.Unit) string { return "members" },
		Timeout: time.Second, KeepsEnded: func(*plan.Unit) time.Duration { return time.Hour }, Now: time.Now})
}

// An answer that berth-host takes as too long is asked for in parts; each job is there once (case many-long-names-break-list).
func TestLongAnswerIsAskedForInParts(t *testing.T) {
	h := &many{tools: &tools{}, jobs: map[string]string{}, most: 2}
	for i := 1; i <= 9; i++ {
		id := fmt.Sprint(i)
		h.jobs[id] = row(id, "PENDING", "(null)")
	}
	at := scope(schema.ModePassthrough, nil)
	all, err := queueAt(h).Jobs(t.Context(), at.Unit, at.Stamp)
	require.NoError(t, err)
	var ids []string
	for _, j := range all {
		ids = append(ids, j.JobID)
	}
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, ids)
	require.Contains(t, h.asked, "1,2,3,4,5,6,7,8,9")
	require.Contains(t, h.asked, "1,2")

	h.most, h.asked = 9, nil
	_, err = queueAt(h).Jobs(t.Context(), at.Unit, at.Stamp)
	require.NoError(t, err)
	require.Empty(t, h.asked, "at once while the answer is short enough")
}

// One call lists the jobs of all projects. Each job belongs to the project whose id is its account; where one project has the
// cluster, all are its own. A call for one job has those of its project only.
func TestListHasTheProjectOfEachJob(t *testing.T) {
	h := &many{tools: &tools{}, jobs: map[string]string{}, most: 9}
	for id, account := range map[string]string{"1": "physics.lattice", "2": "bio.genes", "3": "root"} {
		h.jobs[id] = strings.ReplaceAll(row(id, "PENDING", "(null)"), "physics.lattice", account)
	}
	shared := scope(schema.ModePassthrough, nil)
	attached, alone := *shared.Unit, *shared.Unit
	attached.Effective.Key = schema.InstanceKey("physics", "lattice", "train")
	attached.Effective.Attachments = []schema.EffectiveAttachment{{}}
	alone.Effective.Key = schema.InstanceKey("physics", "lattice", "train")
	for name, c := range map[string]struct {
		unit *plan.Unit
		want []string
	}{
		"shared runtime":            {shared.Unit, []string{"physics.lattice", "bio.genes", "root"}},
		"instance with attachments": {&attached, []string{"physics.lattice", "bio.genes", "root"}},
		"instance":                  {&alone, []string{"physics.lattice", "physics.lattice", "physics.lattice"}},
	} {
		all, err := queueAt(h).Jobs(t.Context(), c.unit, shared.Stamp)
		require.NoError(t, err, name)
		var projects []string
		for _, j := range all {
			projects = append(projects, j.ProjectID)
		}
		require.Equal(t, c.want, projects, name)
	}
	_, err := queueAt(h).Job(t.Context(), shared, queue.Ref{JobID: "1"})
	require.NoError(t, err)
	_, err = queueAt(h).Job(t.Context(), shared, queue.Ref{JobID: "2"})
	require.ErrorIs(t, err, queue.ErrNotFound)
}

// The key of a job that slurmctld has forgotten is in the line of its submission at slurmdbd. Text of a user at
// another place, and the script of another cluster, are ignored.
func TestKeyIsInTheLineOfTheSubmission(t *testing.T) {
	s := ask("main")
	s.IdempotencyKey = "nightly" // its job may have ended long ago
	script := profile.Script{Cluster: "north", UID: s.User.UID, Key: s.IdempotencyKey, Digest: s.Digest(), Name: "job.sh"}
	elsewhere := script
	elsewhere.Cluster = "south"
	others := script // of a person who had the name before
	others.UID++
	sbatch := func(options ...string) string {
		return "/usr/bin/sbatch " + strings.Join(profile.SubmitArgs(options...), " ")
	}
	for line, known := range map[string]bool{
		sbatch("--chdir=/", script.Path()):                              true,
		sbatch(script.Path()):                                           true,
		sbatch(script.Path(), "--chdir=/"):                              false,
		"sbatch --wrap 'true # " + script.Path():                        false,
		sbatch(elsewhere.Path()):                                        false,
		sbatch(others.Path()):                                           false,
		sbatch("--job-name=" + script.Path()):                           false,
		sbatch(script.Path() + "/../x"):                                 false,
		"sbatch --comment=berth/" + s.IdempotencyKey + "/" + s.Digest(): false,
	} {
		h := &many{tools: &tools{answers: map[string]runtimes.Result{"sbatch": fails("sbatch: error: the queue is closed"),
			"sdiag": {Data: []byte("DBD Agent queue size: 0\n")}}}, jobs: map[string]string{}, most: 9}
		accounted := &accountedOnly{many: h, row: strings.ReplaceAll(row("12", "COMPLETED", line), "|ada|", "|"+s.User.Name+"|")}
		job, err := queueAt(accounted).Submit(t.Context(), scope(schema.ModePassthrough, nil), s)
		if !known {
			require.ErrorIs(t, err, queue.ErrDenied, line)
			continue
		}
		require.NoError(t, err, line)
		require.Equal(t, []string{"12", s.IdempotencyKey}, []string{job.JobID, job.IdempotencyKey})

		// Berth ended it in accounting, as slurmctld had lost it.
		accounted.comment = profile.LostComment
		kept, err := queueAt(accounted).Job(t.Context(), scope(schema.ModePassthrough, nil), queue.Ref{JobID: "12"})
		require.NoError(t, err)
		require.Equal(t, "COMPLETED", kept.State, "a task of an array, which ended before")
		accounted.row = strings.Replace(accounted.row, "|1795395503|", "|1795395502|", 1)
		_, err = queueAt(accounted).Submit(t.Context(), scope(schema.ModePassthrough, nil), s)
		require.ErrorIs(t, err, queue.ErrDenied, "it is submitted again")
		lost, err := queueAt(accounted).Job(t.Context(), scope(schema.ModePassthrough, nil), queue.Ref{JobID: "12"})
		require.NoError(t, err)
		require.Equal(t, cli.Lost, lost.State)
		require.True(t, lost.Run.Ended.IsZero())
	}
}

// accountedOnly has one job, which slurmctld does not have.
type accountedOnly struct {
	*many
	row string
}

func (h *accountedOnly) Host(plan.Member) runtimes.Host { return h }

func (h *accountedOnly) Do(ctx context.Context, stamp runtimes.Stamp, ops ...runtimes.Op) (all []runtimes.Result, err error) {
	for _, op := range ops {
		h.jobs = map[string]string{}
		if op.Run != nil && op.Run.Program == "sacct" {
			h.jobs["12"] = h.row
		}
		res, err := h.many.Do(ctx, stamp, op)
		if err != nil {
			return nil, err
		}
		all = append(all, res...)
	}
	return all, nil
}
