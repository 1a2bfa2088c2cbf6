//go:build long

package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"berth/examples/explore"
	"berth/runtimes/host/hosttest"
)

// TestLongSharedRuntimeSurvivesKills kills the daemon at each step of attach, terms and detach: as the
// control host begins each request that changes something there, and after what the daemon logs.
func TestLongSharedRuntimeSurvivesKills(t *testing.T) {
	parts := explore.Draw(t, 1, []string{"attach and terms at each request", "detach at each odd request", "detach at each even request", "after each log line"})
	play := func(name string, f func(*killed)) {
		if !slices.Contains(parts, name) {
			return
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKilled(t, hosttest.Image())
			for _, name := range []string{"attach", "narrow", "widen", "detach"} {
				k.change(name, moment{})
			}
			f(k)
		})
	}
	play("attach and terms at each request", func(k *killed) {
		narrows := true
		for n := 1; k.change("attach", moment{effect: n}); n++ {
			if narrows {
				narrows = k.change("narrow", moment{effect: n})
				k.change("widen", moment{})
			}
			k.change("detach", moment{})
		}
	})
	detach := func(from int) func(*killed) {
		return func(k *killed) {
			k.change("attach", moment{})
			for n := from; k.change("detach", moment{effect: n}); n += 2 {
				k.change("attach", moment{})
			}
		}
	}
	play("detach at each odd request", detach(1))
	play("detach at each even request", detach(2))
	play("after each log line", func(k *killed) {
		draw := rand.New(rand.NewPCG(explore.Seed(t), 0))
		random := func(most time.Duration) time.Duration { return time.Duration(draw.Int64N(int64(most))) }
		for _, line := range []string{decided, applying, ended, `"to":"running"`} {
			k.change("attach", moment{line: line})
			k.change("narrow", moment{line: line})
			k.change("widen", moment{line: applying, delay: random(1500 * time.Millisecond)})
			k.change("detach", moment{line: line})
		}
		for range 3 {
			k.change("attach", moment{line: applying, delay: random(4 * time.Second)})
			k.change("detach", moment{line: applying, delay: random(8 * time.Second)})
		}
	})
}
