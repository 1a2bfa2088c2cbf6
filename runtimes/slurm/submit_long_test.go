//go:build long

package slurm_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema/queue"
)

// A script does what sbatch makes of it in the directory of the submission (cases api-ignores-output-and-chdir,
// api-submit-dir-is-root, key-lost-with-comment and array-output-2205).
func TestLongSubmissionIsThatOfSbatch(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0, 1)
	at := c.queueOf(u, u.Effective.Key.ProjectID(), nil)
	own := profile.Stack{Cluster: cluster.Name(u.Effective.Key)}.JobsOf(alice.Name, alice.UID)
	const says = `echo "from $SLURM_SUBMIT_DIR in $PWD as $SLURM_JOB_NAME"`
	t.Cleanup(func() { c.removeOutputs(t, true) }) // a directory that is not empty stays when its worker leaves
	for worker := range 2 {
		c.onWorker(t, worker, "install -d -o "+fmt.Sprint(alice.UID)+" "+own+"/sub")
	}

	run := rand.Text()[:8] // the cluster may have the jobs of an earlier run
	submit := func(key string, change func(*queue.Request), lines ...string) queue.Job {
		t.Helper()
		s := submission(at.ProjectID, alice, key+"-"+run, strings.Join(lines, "\n"))
		change(&s.Request)
		job, err := c.rt.Submit(t.Context(), at, s)
		require.NoError(t, err)
		again, err := c.rt.Submit(t.Context(), at, s)
		require.NoError(t, err)
		require.Equal(t, job.JobID, again.JobID, "the key names it")
		return job
	}
	for name, a := range map[string]struct {
		change func(*queue.Request)
		lines  []string
		task   string
		name   string
		want   string // of what it prints
	}{
		"nothing": {lines: []string{says}, name: "sbatch", want: "from " + own + " in " + own + " as sbatch"},
		"file": {change: func(r *queue.Request) { r.ScriptName = "train.sh" }, lines: []string{says}, name: "train.sh",
			want: "from " + own + " in " + own + " as train.sh"},
		"directory": {change: func(r *queue.Request) { r.WorkDir = "/tmp" }, lines: []string{"#SBATCH -D /var/tmp", says}, name: "sbatch",
			want: "from /tmp in /tmp as sbatch"},
		"options of the script": {change: func(r *queue.Request) { r.ScriptName = "x.sh" },
			lines: []string{"#SBATCH -HQJnamed --chdir=/var/tmp", "#SBATCH --outp '/tmp/mine-%x-%5j.out'", says}, name: "named",
			want: "from " + own + " in /var/tmp as named"},
		"relative directory": {lines: []string{"#SBATCH --chdir sub", says}, name: "sbatch",
			want: "from " + own + " in " + own + "/sub as sbatch"},
		"array": {lines: []string{"#SBATCH --array=3", says}, task: "_3", name: "sbatch", want: "from " + own + " in " + own},
		"name of the request": {change: func(r *queue.Request) { r.Name, r.ScriptName = "asked", "x.sh" },
			lines: []string{"#SBATCH --job-name=script", says}, name: "asked",
			want: "as asked"},
		"without an environment": {lines: []string{"#SBATCH --export=NONE", says}, name: "sbatch",
			want: "from " + own + " in " + own + " as sbatch"},
		"lines for PBS": {lines: []string{"#PBS -N old", "#PBS -o /tmp/pbs.out", says}, name: "old",
			want: "from " + own + " in " + own + " as old"},
		"tools of Slurm": {lines: []string{"srun true && squeue -h -o %T -j $SLURM_JOB_ID && sbatch --parsable -o /dev/null --wrap true " +
			"&& " + says}, name: "sbatch", want: "RUNNING\n"},
		"parts": {lines: []string{"#SBATCH -n1", "#SBATCH hetjob", "#SBATCH -n1", says}, name: "sbatch",
			want: "from " + own + " in " + own + " as sbatch"},
		"large": {lines: []string{strings.Repeat("# "+strings.Repeat("x", 1022)+"\n", 4000), says}, name: "sbatch", want: "from " + own},
	} {
		t.Run(name, func(t *testing.T) {
			if a.change == nil {
				a.change = func(*queue.Request) {}
			}
			job := submit("as-"+strings.ReplaceAll(name, " ", "-"), a.change, a.lines...)
			require.Equal(t, a.name, job.Name)
			if strings.Contains(a.lines[0], "-HQ") {
				require.Equal(t, "PENDING", job.State, "held, as its script says")
				c.tool(t, u, "scontrol release "+job.JobID)
			}
			c.awaitState(t, at, job.JobID+a.task, "COMPLETED")
			out, err := c.rt.Output(t.Context(), at, queue.Ref{JobID: job.JobID + a.task}, 300)
			require.NoError(t, err)
			require.Contains(t, string(out.Text), a.want)
		})
	}

	// The comment is the owner's, and the key is not in it.
	job := submit("owner", func(*queue.Request) {}, "#SBATCH --comment='my own'", "sleep 600")
	require.Contains(t, c.tool(t, u, "scontrol show job "+job.JobID), "Comment=my own")
	c.tool(t, u, fmt.Sprintf("setpriv --reuid=%d --regid=%[1]d --clear-groups scontrol update jobid=%s comment=berth/other/0 name=renamed",
		alice.UID, job.JobID))
	again := submit("owner", func(*queue.Request) {}, "#SBATCH --comment='my own'", "sleep 600")
	require.Equal(t, []string{job.JobID, "owner-" + run, "renamed"}, []string{again.JobID, again.IdempotencyKey, again.Name})
	require.Empty(t, c.onControl(t, u, "find /run/berth-submit -mindepth 1"), "no script is left")

	s := submission(at.ProjectID, alice, "gpus", "#SBATCH --cpus-per-task=1\n#SBATCH -G 1\ntrue")
	s.GPUs = 1
	_, err := c.rt.Submit(t.Context(), at, s)
	require.ErrorIs(t, err, queue.ErrDenied)
	require.ErrorContains(t, err, "line 3 of the script has --gpus, and the request has gpus as well: keep one of them")
}

// A user's jobs with long texts take the list and submissions from nobody (case many-long-names-break-list).
func TestLongTextsOfJobsHideNone(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	run := rand.Text() // slurmctld also has ended jobs of other tests
	c.onControl(t, u, "long="+run+fmt.Sprintf(`$(head -c 900 /dev/zero | tr '\0' x)
path=$(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do printf '/%%s' "$(head -c 250 /dev/zero | tr '\0' p)"; done)
seq 950 | xargs -P 4 -I{} setpriv --reuid=%d --regid=%[1]d --clear-groups sbatch --quiet --hold --chdir=/tmp -J $long --comment=$long -o /tmp$path/%%j.out --wrap true`, alice.UID))
	at := c.queueOf(u, u.Effective.Key.ProjectID(), nil)
	all, err := c.rt.Jobs(t.Context(), at.Unit, at.Stamp)
	require.NoError(t, err)
	long := 0
	for _, j := range all {
		if j.Name == run+strings.Repeat("x", 128-len(run)) {
			long++
		}
	}
	require.Equal(t, 950, long)
	_, err = c.rt.Submit(t.Context(), at, submission(at.ProjectID, alice, "beside-"+run, "true"))
	require.NoError(t, err)
}
