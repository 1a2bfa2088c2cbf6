package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host/agent"
)

// echo is an opener whose helper answers every request after a delay with the
// request's timeout.
type echo struct {
	takes  time.Duration
	mu     sync.Mutex
	stamps []runtimes.Stamp // of the requests
	opened int
	ended  int
}

// open connects to a helper whose answers take time in a bubble.
func (e *echo) open(ctx context.Context) (*session, error) {
	fromUs, in := io.Pipe()
	out, toUs := io.Pipe()
	over := make(chan struct{})
	e.count(&e.opened)
	go func() {
		defer close(over)
		defer e.count(&e.ended)
		defer toUs.Close()
		if agent.WriteLine(toUs, agent.Hello{Berth: agent.Protocol}) != nil {
			return
		}
		for dec := json.NewDecoder(fromUs); ; {
			var r agent.Request
			if dec.Decode(&r) != nil {
				return
			}
			e.mu.Lock()
			e.stamps = append(e.stamps, r.Stamp)
			e.mu.Unlock()
			time.Sleep(e.takes)
			d := (time.Duration(r.TimeoutMS) * time.Millisecond).String()
			if agent.WriteLine(toUs, agent.Response{ID: r.ID, Results: []runtimes.Result{{Names: []string{d}}}}) != nil {
				return
			}
		}
	}()
	s := newSession(in, out, &stderrText{}, over, func() {
		_ = in.Close()
		_ = out.Close()
	})
	if err := s.readHello(ctx); err != nil {
		s.hangUp()
		return nil, err
	}
	return s, nil
}

func (e *echo) close() {}

func (e *echo) count(n *int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*n++
}

func (e *echo) counts() (opened, ended int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opened, e.ended
}

func TestSessionsAreReusedAndClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &echo{takes: time.Second}
		f := newRemote("w1", e)
		call := func(n int) time.Duration {
			begun := time.Now()
			var wait sync.WaitGroup
			for range n {
				wait.Go(func() {
					_, err := f.Do(t.Context(), runtimes.Stamp{}, runtimes.Op{Info: &runtimes.Info{}})
					require.NoError(t, err)
				})
			}
			wait.Wait()
			return time.Since(begun)
		}
		opened := func() int { n, _ := e.counts(); return n }
		require.Equal(t, time.Second, call(1))
		require.Equal(t, time.Second, call(1))
		require.Equal(t, 1, opened(), "kept")
		require.Equal(t, 2*time.Second, call(2*sessionsOfTenant), "no more than so many at once")
		require.Equal(t, sessionsOfTenant, opened())
		time.Sleep(keepIdle + time.Second)
		synctest.Wait()
		_, ended := e.counts()
		require.Equal(t, sessionsOfTenant, ended, "let go when nobody asks")
		call(1)
		require.Equal(t, sessionsOfTenant+1, opened())
		f.shut()
		synctest.Wait()
		_, ended = e.counts()
		require.Equal(t, sessionsOfTenant+1, ended)
		_, err := f.Do(t.Context(), runtimes.Stamp{}, runtimes.Op{Info: &runtimes.Info{}})
		require.ErrorIs(t, err, runtimes.ErrUnreachable)
	})
}

// Requirement E9: 10,000 calls for one tenant delay those for 20 others at the same host little: 99 of 100 of these take at most
// twice as long as without it. While calls for one tenant hang, others find a session.
func TestTenantsTakeTurnsAtAHost(t *testing.T) {
	const others, each = 20, 5
	took := func(t *testing.T, large int) (all []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			f := newRemote("w1", &echo{takes: 10 * time.Millisecond})
			ask := func(ctx context.Context, tenant string) error {
				_, err := f.Do(runtimes.WithTenant(ctx, tenant), runtimes.Stamp{}, runtimes.Op{Info: &runtimes.Info{}})
				return err
			}
			var mu sync.Mutex
			var wait sync.WaitGroup
			asking, end := context.WithCancel(t.Context())
			for range large {
				go func() { _ = ask(asking, "large") }()
			}
			time.Sleep(25 * time.Millisecond)
			for i := range others * each {
				wait.Go(func() {
					began := time.Now()
					require.NoError(t, ask(t.Context(), fmt.Sprint("other-", i%others)))
					mu.Lock()
					defer mu.Unlock()
					all = append(all, time.Since(began))
				})
			}
			wait.Wait()
			end()
			f.shut()
			time.Sleep(time.Second) // the helpers end
		})
		slices.Sort(all)
		return all
	}
	alone, beside := took(t, 0), took(t, 10_000)
	at := others * each * 99 / 100
	require.LessOrEqual(t, beside[at], 2*alone[at])

	synctest.Test(t, func(t *testing.T) {
		f := newRemote("w1", &echo{takes: time.Minute})
		hung := runtimes.WithTenant(t.Context(), "large")
		for range 10 {
			go func() { _, _ = f.Do(hung, runtimes.Stamp{}, runtimes.Op{Info: &runtimes.Info{}}) }()
		}
		synctest.Wait()
		give, err := f.slots.Take(t.Context(), "other")
		require.NoError(t, err)
		give()
		f.shut()
		time.Sleep(2 * time.Minute) // the helpers end
	})
}

// Requirement E3: calls of tenants that hang in all their sessions do not make a host silent.
func TestFactsAreReadWhileAllSessionsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &echo{takes: time.Hour}
		f := newRemote("w1", e)
		info := runtimes.Op{Info: &runtimes.Info{}}
		for i := range maxSessions {
			go func() { _, _ = f.Do(runtimes.WithTenant(t.Context(), fmt.Sprint(i)), runtimes.Stamp{}, info) }()
		}
		synctest.Wait()
		opened, _ := e.counts()
		require.Equal(t, maxSessions, opened)
		e.takes = 0 // the helpers that are asked already sleep
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.Do(short, runtimes.Stamp{}, info)
		require.ErrorIs(t, err, runtimes.ErrUnreachable)
		require.ErrorContains(t, err, "all sessions that this tenant may have are in use")
		begun := time.Now()
		for range 2 {
			_, err = f.Do(t.Context(), runtimes.Stamp{}, runtimes.Op{Facts: &runtimes.ReadFacts{}})
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(begun), "of the bubble's clock")
		opened, _ = e.counts()
		require.Equal(t, maxSessions+sessionsOfFacts, opened)
		f.shut()
		time.Sleep(time.Hour) // the helpers end
	})
}

// A call without a deadline has that of its operations. The helper gets a little less,
// so that it can report which operation timed out.
func TestDeadlineOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRemote("w1", &echo{})
		defer f.shut()
		far := func(ctx context.Context, ops ...runtimes.Op) string {
			res, err := f.Do(ctx, runtimes.Stamp{}, ops...)
			require.NoError(t, err)
			return res[0].Names[0]
		}
		run := runtimes.Op{Run: &runtimes.Run{Program: "x", TimeoutMS: 60000}}
		require.Equal(t, "10s", far(t.Context(), runtimes.Op{Info: &runtimes.Info{}}))
		require.Equal(t, "1m9s", far(t.Context(), run))
		require.Equal(t, "2m33s", far(t.Context(), run, run,
			runtimes.Op{Service: &runtimes.Service{Verb: "restart", TimeoutMS: 8000}}))
		short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.Equal(t, "1.8s", far(short, run))

		hung := newRemote("w2", &echo{takes: time.Hour})
		begun := time.Now()
		_, err := hung.Do(t.Context(), runtimes.Stamp{Epoch: 1}, run)
		require.ErrorIs(t, err, runtimes.ErrUncertain)
		require.ErrorContains(t, err, "no answer within 1m10s")
		require.Equal(t, 70*time.Second, time.Since(begun))
		time.Sleep(time.Hour) // until its far side has noticed
		hung.shut()
	})
}

// Only one call waits for the dial timeout of a dead host. The interval between
// attempts grows to a bound, and concurrent calls share an attempt.
func TestDeadHostDelaysOneCallOnly(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte(SampleKey), 0o600))
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var dials []time.Duration
		begun := time.Now()
		hosts, err := NewSSH(SSHOptions{
			User: "berth", HostKey: func(string) string {
				return "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
			},
			KeyFile: key, Log: slog.New(slog.DiscardHandler),
			Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
				require.Equal(t, "10.0.0.1:22", address)
				mu.Lock()
				dials = append(dials, time.Since(begun))
				mu.Unlock()
				<-ctx.Done() // packets are dropped
				return nil, errors.New("i/o timeout")
			},
		})
		require.NoError(t, err)
		host := hosts.Host(plan.Member{Node: "w1", Address: "10.0.0.1"})
		tried := func() []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(dials)
		}
		ask := func() error {
			_, err := host.Do(t.Context(), runtimes.Stamp{Epoch: 1}, runtimes.Op{Run: &runtimes.Run{Program: "x"}})
			require.ErrorIs(t, err, runtimes.ErrUnreachable)
			return err
		}
		var wait sync.WaitGroup
		for range maxSessions {
			wait.Go(func() { ask() })
		}
		wait.Wait()
		require.Equal(t, 5*time.Second, time.Since(begun))
		require.Len(t, tried(), 1)
		said := ask().Error()
		require.True(t, strings.HasSuffix(said, "i/o timeout"), said)
		for time.Since(begun) < time.Minute {
			require.Equal(t, said, ask().Error(), "the error changes only when the host does")
			time.Sleep(50 * time.Millisecond)
		}
		require.Equal(t, []time.Duration{0, 5250, 10750, 16750, 23750, 32750, 41750, 50750, 59750}, milliseconds(tried()))

		// A call that gives up before the dial ends leaves it to the next.
		time.Sleep(10 * time.Second)
		n := len(tried())
		for range 2 {
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = host.Do(short, runtimes.Stamp{}, runtimes.Op{Info: &runtimes.Info{}})
			cancel()
			require.ErrorIs(t, err, runtimes.ErrUnreachable)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Len(t, tried(), n+1)
		require.NoError(t, hosts.Close(), "also while it dials")
	})
}

func milliseconds(list []time.Duration) []time.Duration {
	out := make([]time.Duration, len(list))
	for i, d := range list {
		out[i] = d / time.Millisecond
	}
	return out
}
