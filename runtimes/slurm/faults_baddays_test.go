//go:build long && baddays

package slurm_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// faultClusters is how many clusters the faults are on.
const faultClusters = 3

// TestLongBadDays causes each fault of testdata/faults on a cluster with a job that runs and one that waits, and prints when an
// observation shows it, in which words, when it is repaired, and what became of the jobs (make baddays).
func TestLongBadDays(t *testing.T) {
	t.Parallel()
	var (
		mu      sync.Mutex
		rows    []badDay
		release string
	)
	only := regexp.MustCompile(os.Getenv("BERTH_FAULTS"))
	all := slices.DeleteFunc(readFaults(t), func(f worldFault) bool { return !only.MatchString(f.name) })
	require.NotEmpty(t, all)
	t.Run("clusters", func(t *testing.T) {
		for n := range faultClusters {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				d := newBadDays(t)
				for i := n; i < len(all); i += faultClusters {
					row := d.day(t, all[i])
					t.Log(row) // a run that ends early shows this much
					mu.Lock()
					rows, release = append(rows, row), string(d.version)
					mu.Unlock()
					if row.stuck {
						t.Logf("%s is not right: the cluster is made again", all[i].name)
						d = newBadDays(t)
					}
				}
			})
		}
	})
	slices.SortFunc(rows, func(a, b badDay) int { return strings.Compare(a.name, b.name) })
	wrong := 0
	out := fmt.Sprintf("%-48s %7s %-9s %7s %-8s %s\n", "fault", "told s", "fate", "s", "jobs", "words")
	for _, r := range rows {
		if out += r.String(); r.wrong != "" {
			wrong++
		}
	}
	t.Logf("%s\nSlurm %s: %d faults, %d not as their files say", out, release, len(rows), wrong)
	require.Zero(t, wrong)
}

// badDay is what became of a fault.
type badDay struct {
	worldFault
	told, done  time.Duration
	words, jobs string
	wrong       string
	stuck       bool // the cluster did not return to its first state
}

func (d badDay) String() string {
	s := fmt.Sprintf("%-48s %7.1f %-9s %7.1f %-8s %s\n", d.name, d.told.Seconds(), d.Fate, d.done.Seconds(), d.jobs, d.words)
	if d.wrong != "" {
		s += "    WRONG: " + d.wrong + "\n"
	}
	return s
}

// badDays is a cluster with a job that runs on gpu-1 and one that waits for it.
type badDays struct {
	*company
	unit          plan.Unit
	runs, waiting slurmtest.Job
	usual         []string // the sentences of an observation of the new cluster
}

// faultObservations is how many observations a fault may take.
const faultObservations = 80

func newBadDays(t *testing.T) *badDays {
	d := &badDays{company: &company{stage: newStageOf(t, 2)}}
	// A daemon that hangs is found by a call that takes as long as its clients wait, not by one of a minute.
	limits := slurm.Timeouts{Call: 15 * time.Second, Look: 20 * time.Second, Ready: generous.Ready}
	d.rt = slurm.New(slurm.Options{Hosts: d.hosts, Timeouts: limits})
	d.unit = d.company.unit(faultConfig, []schema.UnixUser{alice, bob}, nil, 0, 1)
	d.carry(t, d.unit, false)
	submit := func(state slurmtest.State) slurmtest.Job {
		id, err := d.trySubmit(t, d.unit, alice, "sleep 30000\n", "--gres=gpu:2", "--nodelist=gpu-1")
		require.NoError(t, err)
		return d.await(t, d.unit, id, state)
	}
	d.runs, d.waiting = submit(slurmtest.Running), submit(slurmtest.Pending)
	d.saved(t, d.unit, d.waiting.ID) // a killed slurmctld loses newer jobs
	d.usual = d.sentences(d.observe(t, d.unit))
	return d
}

// day causes a fault, reconciles until the cluster is as before, and returns the row of the table.
func (d *badDays) day(t *testing.T, f worldFault) badDay {
	row := badDay{worldFault: f}
	d.cause(t, d.unit, f)
	began, undone, acted := time.Now(), false, 0
	var seen []string
	note := func(sentences []string) {
		for _, s := range sentences {
			if !slices.Contains(seen, s) {
				seen = append(seen, s)
			}
			if row.told == 0 && strings.Contains(s, f.Told) {
				row.told, row.words = max(time.Since(began), time.Millisecond), s
			}
		}
	}
	for range faultObservations {
		obs := d.observe(t, d.unit)
		p := plan.Make(plan.Input{Key: d.unit.Effective.Key, After: &d.unit.Effective, Members: d.unit.Members, Observed: obs, Rules: d.rt})
		said := d.sentences(obs)
		note(said)
		failed, _ := (&truth{company: d.company}).run(t, p)
		note(failed)
		isRight := p.Empty() && len(said) == 0
		switch {
		case (row.told > 0 && f.Fate == repaired || undone) && isRight:
			row.done, row.jobs = time.Since(began), d.ofJobs(t)
			if row.jobs != "go on" {
				row.wrong, row.stuck = "a job is lost", true
			}
			return row
		case row.told > 0 && f.Fate != repaired && !undone && acted < 4: // Berth has had time to act
			acted++
		case row.told > 0 && f.Fate != repaired && !undone:
			d.shell(t, d.unit, f.Host, f.Holds)
			d.shell(t, d.unit, f.Host, f.Undo)
			undone, began = true, time.Now()
		}
	}
	row.wrong, row.stuck = fmt.Sprintf("seen: %s; to do: %v", strings.Join(seen, " | "), verbs(d.plan(t, d.unit, false))), true
	row.jobs = d.ofJobs(t)
	return row
}

// ofJobs says what became of the jobs.
func (d *badDays) ofJobs(t *testing.T) string {
	state := func(job slurmtest.Job) string {
		s, err := (slurmtest.Jobs{Hosts: d.hosts}).Queued(t.Context(), &d.unit, job.ID)
		if err != nil {
			return err.Error()
		}
		return string(s)
	}
	if a, b := state(d.runs), state(d.waiting); a != string(slurmtest.Running) || b != string(slurmtest.Pending) {
		return a + "," + b
	}
	return "go on"
}

// sentences are the unusual sentences of an observation of the cluster.
func (d *badDays) sentences(obs plan.Observed) (all []string) {
	all = append(all, obs.Reason)
	for _, m := range obs.Members {
		if m.State != plan.Running {
			m.Detail = string(m.State) + " " + m.Detail
		}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", m.Name, m.Detail, m.OutOfService, m.Note)))
	}
	for _, x := range obs.Drift {
		all = append(all, fmt.Sprintf("%s %s: %s", x.Member, x.What, x.Detail))
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" || slices.Contains(d.usual, s) })
}
