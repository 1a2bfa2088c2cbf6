package queueing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/queue"
)

// scheduler has the jobs that were submitted, and counts the questions that it gets.
type scheduler struct {
	runtimes.Queue
	mu    sync.Mutex
	held  []queue.Job
	lists int // questions for all jobs
	gets  int // for one job
	nodes int
	takes time.Duration // each question
	err   error         // of each
}

// question answers after the time that a question takes, in a bubble.
func (s *scheduler) question(count *int) ([]queue.Job, error) {
	s.mu.Lock()
	*count++
	held, err := append([]queue.Job{}, s.held...), s.err
	s.mu.Unlock()
	time.Sleep(s.takes)
	return held, err
}

func (s *scheduler) Jobs(ctx context.Context, _ *plan.Unit, _ runtimes.Stamp) ([]queue.Job, error) {
	held, err := s.question(&s.lists)
	return held, errors.Join(err, ctx.Err())
}

func (s *scheduler) Nodes(context.Context, *plan.Unit, runtimes.Stamp) ([]queue.Node, error) {
	_, err := s.question(&s.nodes)
	return []queue.Node{{Member: "worker-0"}}, err
}

func (s *scheduler) Job(_ context.Context, _ runtimes.QueueScope, ref queue.Ref) (queue.Job, error) {
	held, err := s.question(&s.gets)
	for _, j := range held {
		if j.JobID == ref.JobID {
			return j, err
		}
	}
	return queue.Job{}, errors.Join(err, queue.ErrNotFound)
}

func (s *scheduler) Submit(_ context.Context, at runtimes.QueueScope, sub queue.Submission) (queue.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := queue.Job{JobID: fmt.Sprint(len(s.held) + 1), ProjectID: at.ProjectID, User: sub.User.Name, State: "PENDING"}
	s.held = append(s.held, j)
	return j, nil
}

func (s *scheduler) Cancel(_ context.Context, _ runtimes.QueueScope, ref queue.Ref) (queue.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.held {
		if s.held[i].JobID == ref.JobID {
			s.held[i].State = "CANCELLED"
		}
	}
	return queue.Job{}, fmt.Errorf("%w: the answer was lost", queue.ErrUnavailable)
}

// fixture is a service for train on a scheduler.
type fixture struct {
	*testing.T
	*queueing.Service
	scheduler
	view plan.View
}

func bubble(t *testing.T, test func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, leads := &fixture{T: t, view: estate()}, true
		d.Service = service(&d.view, &leads, &d.scheduler)
		test(d)
	})
}

func as(login string) queueing.Caller { return queueing.Caller{Instance: train, Login: login} }

// list returns the states of the jobs that a caller reads.
func (d *fixture) list(login string) []string {
	d.Helper()
	got, err := d.Service.Jobs(d.Context(), as(login), false)
	require.NoError(d, err)
	states := []string{}
	for _, j := range got.Items {
		states = append(states, j.State)
	}
	return states
}

func (d *fixture) submit(login string) {
	d.Helper()
	_, err := d.Service.Submit(d.Context(), as(login), "k", queue.Request{})
	require.NoError(d, err)
}

// However many people look at a list, the scheduler is asked once in ten seconds, and not at all once they have left.
func TestManyReadersAskOnce(t *testing.T) {
	bubble(t, func(d *fixture) {
		d.takes = time.Second
		look := func() {
			var wg sync.WaitGroup
			for i := range 500 {
				wg.Go(func() {
					got, err := d.Service.Jobs(d.Context(), as(fmt.Sprint("p", i)), false)
					require.NoError(d, err)
					require.Equal(d, time.Since(got.ObservedAt).Truncate(time.Second), time.Duration(got.AgeSeconds)*time.Second)
					_, err = d.Service.Nodes(d.Context(), as(fmt.Sprint("p", i)), false)
					require.NoError(d, err)
				})
			}
			wg.Wait()
		}
		look()
		require.Equal(d, []int{1, 1}, []int{d.lists, d.nodes})
		time.Sleep(8 * time.Second) // the nodes are two seconds old at the end of the observations, the jobs one
		look()
		require.Equal(d, []int{1, 1}, []int{d.lists, d.nodes})
		time.Sleep(5 * time.Second)
		look()
		require.Equal(d, []int{2, 2}, []int{d.lists, d.nodes})
		require.Equal(d, 1, d.Kept())
		time.Sleep(50 * time.Second)
		require.Equal(d, 1, d.Kept())
		time.Sleep(20 * time.Second)
		require.Zero(d, d.Kept(), "10,000 jobs are 7 MB")
		time.Sleep(time.Hour)
		require.Equal(d, []int{2, 2}, []int{d.lists, d.nodes}, "nobody looks")
		look()
		require.Equal(d, []int{3, 3}, []int{d.lists, d.nodes})
	})
}

// A live read asks the scheduler now, and what it found serves the others. Many at a time share what begins after them.
func TestLiveReadAsksNow(t *testing.T) {
	bubble(t, func(d *fixture) {
		require.Empty(d, d.list("ada"))
		d.held = []queue.Job{{JobID: "1", ProjectID: "physics.lattice", State: "RUNNING"}}
		require.Empty(d, d.list("ada"))
		live, err := d.Service.Jobs(d.Context(), as("bob"), true)
		require.NoError(d, err)
		require.Len(d, live.Items, 1)
		require.Equal(d, []string{"RUNNING"}, d.list("ada"))
		require.Equal(d, 2, d.lists)
		_, err = d.Service.Job(d.Context(), as("bob"), queue.Ref{JobID: "1"}, true)
		require.NoError(d, err)
		_, err = d.Service.Nodes(d.Context(), as("bob"), true)
		require.NoError(d, err)
		require.Equal(d, []int{2, 1, 1}, []int{d.lists, d.gets, d.nodes})

		d.takes = time.Second
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				asked := time.Now()
				got, err := d.Service.Jobs(d.Context(), as(fmt.Sprint("p", i)), true)
				require.NoError(d, err)
				require.False(d, got.ObservedAt.Before(asked.Add(-time.Second)))
			})
		}
		wg.Wait()
		require.LessOrEqual(d, d.lists, 4, "one under way, and one that begins after all of them came")
	})
}

// A caller sees the own submission and cancellation at once, also if its answer was lost. The observations for others go on
// as before, and an observation that began before is not enough.
func TestCallerSeesOwnChangesAtOnce(t *testing.T) {
	bubble(t, func(d *fixture) {
		require.Empty(d, d.list("ada"))
		d.submit("ada")
		require.Empty(d, d.list("bob"), "the last observation serves others")
		job, err := d.Service.Job(d.Context(), as("ada"), queue.Ref{JobID: "1"}, false)
		require.NoError(d, err)
		require.Equal(d, "PENDING", job.State)
		require.Equal(d, []int{1, 1}, []int{d.lists, d.gets}, "one job is a shorter question than all")
		require.Equal(d, []string{"PENDING"}, d.list("ada"))
		require.Equal(d, []string{"PENDING"}, d.list("ada"))
		require.Equal(d, []string{"PENDING"}, d.list("bob"))
		require.Equal(d, 2, d.lists)

		_, err = d.Service.Cancel(d.Context(), as("ada"), queue.Ref{JobID: "1"})
		require.ErrorIs(d, err, queue.ErrUnavailable)
		require.Equal(d, []string{"PENDING"}, d.list("bob"))
		require.Equal(d, []string{"CANCELLED"}, d.list("ada"))
		require.Equal(d, 3, d.lists)
		_, err = d.Service.Nodes(d.Context(), as("ada"), false)
		require.NoError(d, err)

		time.Sleep(time.Minute)
		d.takes = time.Second
		var wg sync.WaitGroup
		wg.Go(func() { require.Len(d, d.list("bob"), 1) })
		synctest.Wait()
		d.submit("ada") // during bob's observation
		require.Len(d, d.list("ada"), 2)
		wg.Wait()
		require.Equal(d, 5, d.lists)
		_, err = d.Service.Job(d.Context(), as("ada"), queue.Ref{JobID: "2"}, false)
		require.NoError(d, err)
		require.Equal(d, 1, d.gets, "the observation has it")
	})
}

// A script that submits and then polls its job asks for the one job until the next observation is due, and for no more
// observations than others do.
func TestPollingAfterSubmissionReadsAtTheSamePace(t *testing.T) {
	bubble(t, func(d *fixture) {
		require.Empty(d, d.list("bob"))
		d.submit("ada")
		for range 30 {
			_, err := d.Service.Job(d.Context(), as("ada"), queue.Ref{JobID: "1"}, false)
			require.NoError(d, err)
			time.Sleep(2 * time.Second)
		}
		require.Equal(d, []int{6, 5}, []int{d.lists, d.gets})
	})
}

// The slow calls of a tenant's people do not delay the observation for all.
func TestObservationTakesNoTurnOfItsTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, leads, q := estate(), true, &slow{}
		s := service(&v, &leads, q)
		var wg sync.WaitGroup
		for _, login := range []string{"ada", "ada", "bob"} {
			wg.Go(func() { _, _ = s.Output(t.Context(), as(login), queue.Ref{JobID: "1"}, 1) })
		}
		synctest.Wait()
		began := time.Now()
		_, err := s.Jobs(t.Context(), as("ada"), false)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		wg.Wait()
	})
}

// A job that the last observation has is not asked for. One that it lacks is: the accounting may have it.
func TestJobComesFromTheLastObservation(t *testing.T) {
	bubble(t, func(d *fixture) {
		d.held = []queue.Job{{JobID: "1", ProjectID: "physics.lattice", Submitted: time.Unix(7, 0)}}
		for range 500 {
			job, err := d.Service.Job(d.Context(), as("ada"), queue.Ref{JobID: "1", Submitted: time.Unix(7, 0)}, false)
			require.NoError(d, err)
			require.Equal(d, "1", job.JobID)
		}
		require.Equal(d, []int{1, 0}, []int{d.lists, d.gets})
		_, err := d.Service.Job(d.Context(), as("ada"), queue.Ref{JobID: "1", Submitted: time.Unix(8, 0)}, false)
		require.NoError(d, err)
		_, err = d.Service.Job(d.Context(), as("ada"), queue.Ref{JobID: "9"}, false)
		require.ErrorIs(d, err, queue.ErrNotFound)
		require.Equal(d, []int{1, 2}, []int{d.lists, d.gets})
	})
}

// While the scheduler does not answer, the last good observation is served for a minute with its time, then the error. It is
// never served to a live read, nor to a caller whose effect it lacks. The scheduler is asked every ten seconds.
func TestFailedObservationServesTheLastGoodOne(t *testing.T) {
	bubble(t, func(d *fixture) {
		require.Empty(d, d.list("ada"))
		d.err = fmt.Errorf("%w: no route", queue.ErrUnavailable)
		for range 5 {
			time.Sleep(11 * time.Second)
			for range 500 {
				got, err := d.Service.Jobs(d.Context(), as("bob"), false)
				require.NoError(d, err)
				require.EqualValues(d, (d.lists-1)*11, got.AgeSeconds)
			}
		}
		require.Equal(d, 6, d.lists)
		_, err := d.Service.Jobs(d.Context(), as("bob"), true)
		require.ErrorContains(d, err, "no route")
		d.submit("ada")
		_, err = d.Service.Jobs(d.Context(), as("ada"), false)
		require.ErrorContains(d, err, "no route")
		require.Empty(d, d.list("bob"))
		require.Equal(d, 8, d.lists)
		time.Sleep(5 * time.Second)
		_, err = d.Service.Jobs(d.Context(), as("bob"), false)
		require.ErrorIs(d, err, queue.ErrUnavailable, "a minute has passed")
		_, err = d.Service.Job(d.Context(), as("bob"), queue.Ref{JobID: "1"}, false)
		require.ErrorIs(d, err, queue.ErrUnavailable)
		require.Equal(d, []int{8, 0}, []int{d.lists, d.gets})
		time.Sleep(5 * time.Second)
		d.err = nil
		require.Equal(d, []string{"PENDING"}, d.list("bob"))
	})
}

// An observation of a unit is not used after another commit or operation was applied to it. Requests for a deleted unit,
// and for one that Berth may not ask now, are refused before anything is read.
func TestObservationIsOfTheAppliedUnit(t *testing.T) {
	bubble(t, func(d *fixture) {
		change := func(f func(*plan.Status)) {
			s := *d.view.Units.Get(train)
			f(&s)
			d.view.Units = d.view.Units.With(&s)
		}
		require.Empty(d, d.list("ada"))
		change(func(s *plan.Status) { s.Revision = "c2" })
		require.Empty(d, d.list("ada"))
		change(func(s *plan.Status) { s.Attempt++ })
		require.Empty(d, d.list("ada"))
		require.Equal(d, 3, d.lists)

		before := d.view
		change(func(s *plan.Status) { s.Observed = &plan.Observed{Presence: plan.Absent} })
		_, err := d.Service.Jobs(d.Context(), as("ada"), false)
		require.ErrorContains(d, err, "not deployed")
		d.view = before
		d.view.Desired.Platform.Pause = &schema.Pause{Spec: schema.PauseSpec{Reason: "fire drill"}}
		for _, live := range []bool{false, true} {
			_, err = d.Service.Jobs(d.Context(), as("ada"), live)
			require.ErrorContains(d, err, "fire drill")
			_, err = d.Service.Nodes(d.Context(), as("ada"), live)
			require.ErrorContains(d, err, "fire drill")
			_, err = d.Service.Job(d.Context(), as("ada"), queue.Ref{JobID: "1"}, live)
			require.ErrorContains(d, err, "fire drill")
		}
		require.Equal(d, []int{3, 0, 0}, []int{d.lists, d.gets, d.nodes})
	})
}

// A caller who leaves ends the own wait, and not the observation for others.
func TestLeavingCallerKeepsTheObservation(t *testing.T) {
	bubble(t, func(d *fixture) {
		d.takes = 5 * time.Second
		began := time.Now()
		leaving, leave := context.WithCancel(d.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = d.Service.Jobs(leaving, as("ada"), false) })
		synctest.Wait()
		wg.Go(func() { require.Empty(d, d.list("bob")) })
		wg.Go(func() {
			_, err := d.Service.Jobs(leaving, as("ada"), false)
			require.ErrorIs(d, err, context.Canceled)
			require.Zero(d, time.Since(began), "it does not wait for the observation")
		})
		synctest.Wait()
		leave()
		wg.Wait()
		require.Equal(d, 1, d.lists)
	})
}

// broken is a scheduler whose first list panics.
type broken struct{ scheduler }

func (b *broken) Jobs(ctx context.Context, u *plan.Unit, s runtimes.Stamp) ([]queue.Job, error) {
	if got, err := b.scheduler.Jobs(ctx, u, s); b.lists > 1 {
		return got, err
	}
	panic("a fault of Berth")
}

// A panic fails the call of one caller. Those who wait get an error, and the next observation serves.
func TestPanicEndsTheObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, leads, q := estate(), true, &broken{scheduler{takes: time.Second}}
		s := service(&v, &leads, q)
		var wg sync.WaitGroup
		wg.Go(func() {
			require.Panics(t, func() { _, _ = s.Jobs(t.Context(), as("ada"), false) })
		})
		synctest.Wait()
		_, err := s.Jobs(t.Context(), as("bob"), false)
		require.ErrorContains(t, err, "broke off")
		wg.Wait()
		_, err = s.Jobs(t.Context(), as("bob"), true)
		require.NoError(t, err)
	})
}
