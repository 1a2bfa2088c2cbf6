package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/cmd/internal/labtest"
	"berth/reconciler/plan"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// Checks, comments, jobs and hosts, as users of the demo see them.

// submit submits a job as labtest.JobUser.
func (s *stage) submit(ctx context.Context, key schema.Key, script, output string, gpus int) (string, error) {
	return s.submitAs(ctx, key, labtest.JobUser, script, output, gpus)
}

func (s *stage) submitAs(ctx context.Context, key schema.Key, user, script, output string, gpus int) (string, error) {
	unit, stamp, err := s.unit(ctx, key)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(unit.Effective.Users, func(u schema.UnixUser) bool { return u.Name == user })
	if i < 0 {
		return "", fmt.Errorf("%s is not a user of %s", user, key)
	}
	return s.jobs.Submit(ctx, unit, stamp, unit.Effective.Users[i], script, "--output="+output, fmt.Sprintf("--gres=gpu:%d", gpus))
}

func (s *stage) untilJob(ctx context.Context, key schema.Key, id string, state slurmtest.State) (job slurmtest.Job, err error) {
	unit, _, err := s.unit(ctx, key)
	if err != nil {
		return job, err
	}
	err = s.until(ctx, fmt.Sprintf("job %s is %s", id, state), 30*time.Second, func() (bool, error) {
		if job, err = s.jobs.Job(ctx, unit, id); err != nil {
			return false, err
		}
		if job.State == slurmtest.Failed && state != slurmtest.Failed {
			return false, fmt.Errorf("job %s of Slurm failed: %s", id, job.Detail)
		}
		return job.State == state, nil
	})
	return job, err
}

// startJob submits a job, and waits until it runs.
func (s *stage) startJob(ctx context.Context, key schema.Key, script string) (slurmtest.Job, error) {
	id, err := s.submit(ctx, key, script, "/dev/null", 1)
	if err != nil {
		return slurmtest.Job{}, err
	}
	return s.untilJob(ctx, key, id, slurmtest.Running)
}

// stillRunning verifies that a job runs and was not restarted.
func (s *stage) stillRunning(ctx context.Context, key schema.Key, was slurmtest.Job) error {
	unit, _, err := s.unit(ctx, key)
	if err != nil {
		return err
	}
	now, err := s.jobs.Job(ctx, unit, was.ID)
	if err != nil {
		return err
	}
	if now.State != slurmtest.Running || !sameRun(now, was) {
		return fmt.Errorf("job %s was touched: %+v became %+v", was.ID, was, now)
	}
	return nil
}

// sameRun reports whether a job was not restarted between two observations.
func sameRun(a, b slurmtest.Job) bool {
	return a.Submitted.Equal(b.Submitted) && slices.Equal(a.Nodes, b.Nodes)
}

// clusterOf returns the name of an instance on its hosts, and its status.
func (s *stage) clusterOf(ctx context.Context, key schema.Key) (string, *plan.Status, error) {
	st, err := s.status(ctx, key)
	if err != nil {
		return "", nil, err
	}
	var state struct{ Cluster string }
	if err := json.Unmarshal(st.RuntimeState, &state); err != nil || state.Cluster == "" {
		return "", nil, fmt.Errorf("%s: its runtime state names no cluster: %s", key, st.RuntimeState)
	}
	return state.Cluster, st, nil
}

// fingerprint has the process ids and start times of an instance's daemons on every
// host; a restart changes it.
func (s *stage) fingerprint(ctx context.Context, key schema.Key) (string, error) {
	if s.memory {
		world, err := s.world()
		if err != nil {
			return "", err
		}
		return world.Fingerprint(key), nil
	}
	cluster, st, err := s.clusterOf(ctx, key)
	if err != nil {
		return "", err
	}
	var out []string
	for _, m := range st.Members {
		files := "/run/munge/munged.pid /run/slurm/slurmd.pid" // of a worker
		if m.ControlPlane {
			files = "/run/*" + cluster + "*/*.pid"
		}
		text, err := s.lab.Run(ctx, m.Node, "bash", "-c",
			"for f in "+files+"; do if test -e $f; then p=$(cat $f); echo $f $p $(cut -d' ' -f22 /proc/$p/stat); fi; done")
		if err != nil {
			return "", err
		}
		out = append(out, m.Node+": "+strings.Join(strings.Fields(text), " "))
	}
	return strings.Join(out, "\n"), nil
}

// remains lists files and processes of an instance on all hosts, without the outputs of jobs, which
// Berth leaves to their users.
func (s *stage) remains(ctx context.Context, key schema.Key, cluster string) ([]string, error) {
	if s.memory {
		world, err := s.world()
		if err != nil {
			return nil, err
		}
		return world.Remains(key), nil
	}
	// A pattern that does not match itself where a command line shows it.
	pattern := "[" + cluster[:1] + "]" + cluster[1:]
	var out []string
	for _, n := range s.nodes {
		text, err := s.lab.Run(ctx, n.Name, "bash", "-c",
			"find /etc /var /run /home \\( -path /var/cache/berth-lab -o -path "+profile.JobsDir+" \\) -prune -o -path '*"+pattern+
				"*' -print 2>/dev/null; grep -las '"+pattern+"' /proc/[0-9]*/cmdline || true")
		if err != nil {
			return nil, err
		}
		for _, line := range strings.Fields(text) {
			out = append(out, n.Name+":"+line)
		}
	}
	return out, nil
}

// helperMiB is the resident memory of the largest berth-host in the lab.
func (s *stage) helperMiB(ctx context.Context) (float64, error) {
	most := 0.0
	for _, n := range s.nodes {
		text, err := s.lab.Run(ctx, n.Name, "bash", "-c", "cat /proc/[0-9]*/status 2>/dev/null || true") // some end meanwhile
		if err != nil {
			return 0, err
		}
		ours := false
		for line := range strings.Lines(text) {
			field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch field {
			case "Name":
				ours = strings.TrimSpace(value) == "berth-host"
			case "VmRSS":
				var kib float64
				if _, err := fmt.Sscan(value, &kib); err == nil && ours {
					most = max(most, kib/1024)
				}
			}
		}
	}
	if most == 0 {
		return 0, errors.New("no berth-host runs")
	}
	return most, nil
}
