package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/cmd/internal/labtest"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/queue"
)

// userToken is the token of labtest.ProjectAdmin for the API.
const userToken = "token-of-anna-for-the-api-of-the-demo"

func (s *stage) userTokenFile() string { return filepath.Join(s.dir, "anna-token") }

// command runs berth as labtest.ProjectAdmin, and returns what it prints.
func (s *stage) command(ctx context.Context, stdin string, args ...string) (string, error) {
	args = append(args, "--server", "http://"+s.daemon.listen, "--token-file", s.userTokenFile())
	cmd := exec.CommandContext(ctx, s.berth, args...)
	var out, wrong bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &wrong
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("berth %s: %w: %s", strings.Join(args, " "), err, wrong.String())
	}
	return out.String(), nil
}

// instanceArgument is an instance as berth queue takes it.
func instanceArgument(key schema.Key) string { return key.ProjectID() + "/" + key.Name }

// queueJob reads a job with berth queue get.
func (s *stage) queueJob(ctx context.Context, key schema.Key, id string) (job queue.Job, err error) {
	text, err := s.command(ctx, "", "queue", "get", instanceArgument(key), id, "--live", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &job)
	}
	return job, err
}

// submitJob submits a job with berth queue submit.
func (s *stage) submitJob(ctx context.Context, key schema.Key, script string, options ...string) (job queue.Job, err error) {
	text, err := s.command(ctx, script, append([]string{"queue", "submit", instanceArgument(key), "-o", "json"}, options...)...)
	if err == nil {
		err = json.Unmarshal([]byte(text), &job)
	}
	return job, err
}

// untilState waits until a job is in a state.
func (s *stage) untilState(ctx context.Context, key schema.Key, id, state string) (job queue.Job, err error) {
	err = s.until(ctx, fmt.Sprintf("job %s is %s", id, state), 30*time.Second, func() (bool, error) {
		job, err = s.queueJob(ctx, key, id)
		if err == nil && job.State != state && !job.Ended.IsZero() {
			err = fmt.Errorf("job %s is %s with exit code %s", id, job.State, job.ExitCode)
		}
		return err == nil && job.State == state, err
	})
	return job, err
}

// job runs a job of anna with one GPU through the API, and cancels another one.
func (d *demo) job(ctx context.Context) {
	d.title("Jobs of user anna: berth queue")
	start := time.Now()
	job := must(d.submitJob(ctx, labtest.Train, confinedJob, "--name", "confined", "--gpus", "1"))
	if d.memory {
		d.say("job %s: %s; the memory runtime does not run the script", job.JobID, job.State)
	} else {
		job = must(d.untilState(ctx, labtest.Train, job.JobID, "COMPLETED"))
		d.say("job %s: %s in %.1f s", job.JobID, job.State, time.Since(start).Seconds())
		output := must(d.command(ctx, "", "queue", "output", instanceArgument(labtest.Train), job.JobID))
		d.show(output)
		verify(strings.Contains(output, "CUDA_VISIBLE_DEVICES=0"), "the job did not see its GPU: %q", output)
		verify(strings.Contains(output, "/dev/nvidia0 opened") && strings.Contains(output, "/dev/nvidia1 denied"),
			"the job is not confined to its GPU: %q", output)
	}
	long := must(d.submitJob(ctx, labtest.Train, "#!/bin/sh\nsleep 600\n", "--name", "mistake", "--key", "a-mistake"))
	again := must(d.submitJob(ctx, labtest.Train, "#!/bin/sh\nsleep 600\n", "--name", "mistake", "--key", "a-mistake"))
	verify(long.JobID == again.JobID, "the same idempotency key made the jobs %s and %s", long.JobID, again.JobID)
	must(d.command(ctx, "", "queue", "cancel", instanceArgument(labtest.Train), long.JobID))
	must(d.untilState(ctx, labtest.Train, long.JobID, "CANCELLED"))
	d.show(must(d.command(ctx, "", "queue", "list", instanceArgument(labtest.Train))))
	d.show(must(d.command(ctx, "", "node", "list", instanceArgument(labtest.Train))))
}

// confinedJob asks for one GPU, and tries to open each GPU of its node.
const confinedJob = `#!/bin/sh
echo "$(id -un) on $(hostname): CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES, $(nproc) CPU"
for gpu in /dev/nvidia[0-9]; do
	if (: <>$gpu) 2>/dev/null; then echo "$gpu opened"; else echo "$gpu denied"; fi
done
`

// operate drains a worker by a pull request, and resumes it at the command line.
func (d *demo) operate(ctx context.Context) {
	d.title("A pull request that drains a worker, and berth node resume")
	const file = "tenants/physics/projects/lattice/operations/rest.yaml"
	n := must(d.propose("drain-worker", "train: drain worker-2", labtest.ProjectAdmin,
		gittest.Commit{Files: map[string]string{file: `apiVersion: berth/v1
kind: MemberOperation
metadata:
  name: rest
spec:
  instance: train
  member: worker-2
  operation: drain
  reason: a fan is loud
`}}))
	d.show(firstLines(must(d.untilComment(ctx, n, "worker-2")), 14))
	start := time.Now()
	must(d.merge(ctx, n, labtest.ProjectAdmin))
	merged := time.Now()
	ensure(d.until(ctx, "worker-2 is drained", 20*time.Second, func() (bool, error) {
		st, err := d.status(ctx, labtest.Train)
		return err == nil && slices.ContainsFunc(st.Operations,
			func(o plan.Operation) bool { return o.Name == "rest" && o.Phase == plan.OperationDone }), err
	}))
	d.say("merged after %.1f s", merged.Sub(start).Seconds())
	d.measured("operation from merge to done", time.Since(merged), 3)
	d.show(must(d.command(ctx, "", "node", "list", instanceArgument(labtest.Train), "--live")))
	d.show(must(d.command(ctx, "", "node", "resume", instanceArgument(labtest.Train), "worker-2", "--reason", "the fan was replaced",
		"--wait", "20s")))
	nodes := must(d.command(ctx, "", "node", "list", instanceArgument(labtest.Train), "--live"))
	verify(!strings.Contains(strings.ToUpper(nodes), "DRAIN"), "worker-2 still drains:\n%s", nodes)
	done := must(d.propose("drain-done", "train: worker-2 was drained", labtest.ProjectAdmin, gittest.Commit{Remove: []string{file}}))
	must(d.decided(ctx, must(d.merge(ctx, done, labtest.ProjectAdmin))))
	d.say("the operation is done, so its file was removed")
}
