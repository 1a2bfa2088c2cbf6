package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/runtimes"
	"berth/runtimes/slurm/cli"
)

// Timeouts bound calls to hosts. A zero field has its default.
type Timeouts struct {
	Call  time.Duration // of one program; default 5 s, as tools wait longer for a dead daemon
	Ready time.Duration // until a daemon or a node is ready, and of calls of sacctmgr; default 30 s
	Look  time.Duration // of one host in an Observe; default 8/5 of Call
	// Probe is how long a daemon that hangs leaves a call without an answer; default 10 s,
	// as Slurm's clients give up then (MessageTimeout in slurm.conf(5)). A longer
	// MessageTimeout of a cluster counts.
	Probe time.Duration
}

// localTimeout bounds a program that asks no daemon.
const localTimeout = 30 * time.Second

// environment is what all actions share.
type environment struct {
	hosts    runtimes.Hosts
	timeouts Timeouts
	now      func() time.Time

	mu    sync.Mutex
	locks map[string]*sync.Mutex

	lastJobs lastJobs
	launches launchAnswers
}

// lastJobs has the highest id of a job that was seen in each cluster.
type lastJobs struct {
	mu  sync.Mutex
	ids map[string]int
}

// note keeps the id of the next job that slurmctld gives.
func (l *lastJobs) note(cluster string, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ids == nil {
		l.ids = map[string]int{}
	}
	l.ids[cluster] = max(l.ids[cluster], next-1)
}

// of returns the highest id that was seen; 0: none.
func (l *lastJobs) of(cluster string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[cluster]
}

// lock locks a cluster, whose record one action changes at a time, or a host,
// whose stacks share ports and the database server. The epoch on the host keeps
// other processes out.
func (e *environment) lock(name string) (unlock func()) {
	e.mu.Lock()
	l := e.locks[name]
	if l == nil {
		l = &sync.Mutex{}
		e.locks[name] = l
	}
	e.mu.Unlock()
	l.Lock()
	return l.Unlock
}

// poll calls ask until it is done, for at most the Ready timeout, and less often with time: many
// workers may wait for one slurmctld. The error after
// that contains the state that ask saw last. If the caller's context ends before, the error
// is that of the context.
func (e *environment) poll(caller context.Context, what string, ask func(context.Context) (done bool, seen string, err error)) error {
	ctx, cancel := context.WithTimeout(caller, e.timeouts.Ready)
	defer cancel()
	var seen string
	for pause := 50 * time.Millisecond; ; pause = min(pause*5/4, 400*time.Millisecond) {
		done, now, err := ask(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if done && err == nil {
			return nil
		}
		if now != "" {
			seen = now
		}
		select {
		case <-ctx.Done():
			if seen == "" {
				seen = "nothing"
			}
			if caller.Err() != nil {
				return fmt.Errorf("%s: %w; last seen: %s", what, caller.Err(), seen)
			}
			return fmt.Errorf("%s: not within %s; last seen: %s", what, e.timeouts.Ready, seen)
		case <-time.After(pause):
		}
	}
}

// inParallel calls f for every element at the same time and returns the results in
// order.
func inParallel[T, R any](list []T, f func(T) R) []R {
	results := make([]R, len(list))
	var wg sync.WaitGroup
	for i, one := range list {
		wg.Go(func() { results[i] = f(one) })
	}
	wg.Wait()
	return results
}

// waiting returns the error of an action that has to wait for jobs.
func waiting(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), runtimes.ErrWaiting)
}

// waitList has the conditions for which parts of a change wait, while the rest of it is done.
type waitList []error

// unless keeps an error that is ErrWaiting, and returns any other.
func (w *waitList) unless(err error) error {
	if !errors.Is(err, runtimes.ErrWaiting) {
		return err
	}
	*w = append(*w, err)
	return nil
}

// err returns ErrWaiting with the first reasons; nil: nothing waits.
func (w waitList) err() error {
	const most = 3
	var reasons []string
	for _, err := range w[:min(len(w), most)] {
		reasons = append(reasons, strings.TrimSuffix(err.Error(), ": "+runtimes.ErrWaiting.Error()))
	}
	switch {
	case len(w) == 0:
		return nil
	case len(w) > most:
		reasons = append(reasons, fmt.Sprintf("and %d more", len(w)-most))
	}
	return waiting("%s", strings.Join(reasons, "; "))
}

// launchLife is how long an answer of accounting about the same jobs counts.
const launchLife = time.Minute

// launchAnswers has what accounting said last of the held jobs of each cluster.
type launchAnswers struct {
	mu sync.Mutex
	of map[string]launchAnswer
}

type launchAnswer struct {
	at   time.Time
	jobs cli.RunIDs
	last map[int]cli.Run // the newest run of each job
}

func (l *launchAnswers) get(cluster string, jobs cli.RunIDs, now time.Time) (map[int]cli.Run, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of[cluster]
	return a.last, slices.Equal(a.jobs, jobs) && now.Sub(a.at) < launchLife
}

func (l *launchAnswers) put(cluster string, a launchAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]launchAnswer{}
	}
	l.of[cluster] = a
}
