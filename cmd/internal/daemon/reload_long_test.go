//go:build long

package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/cmd/internal/labtest"
)

// While secrets are replaced and the configuration changes, every delivery is
// acknowledged, and its work is done.
func TestLongReloadLosesNoDelivery(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	k := newKept(t, "north", listen, map[string]any{"listen": listen, "workers": 2})
	s := attend(k, listen)
	e := s.only()
	body := strings.ReplaceAll(hookPush, "lab/estate", "example/north")
	var secret atomic.Pointer[string]
	sign := func(text string) { secret.Store(&text) }
	sign("webhook secret of north")
	var wg sync.WaitGroup
	var sent atomic.Int32
	stop := make(chan struct{})
	for n := range 2 {
		wg.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond) // the pace; without it they take the time of the daemon
			defer pace.Stop()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-pace.C:
				}
				code, err := post("http://"+listen+"/webhooks/github", fmt.Sprint(n, "-", i), "push", *secret.Load(), body)
				if err != nil || code != 202 {
					t.Errorf("delivery %d-%d: %d, %v", n, i, code, err)
				}
				sent.Add(1)
			}
		})
	}
	more := func() { // some arrive
		until := sent.Load() + 20
		s.eventually("they arrive", func() bool { return sent.Load() >= until })
	}
	more()
	next := filepath.Join(k.dir, "secret-next")
	require.NoError(t, os.WriteFile(next, []byte("another secret"), 0o600))
	gh := map[string]any{}
	c := map[string]any{}
	require.NoError(t, yaml.Unmarshal(edited(t, k.path, nil), &c))
	for field, v := range c["forge"].(map[string]any) {
		gh[field] = v
	}
	gh["webhook_secret_next"] = map[string]string{"file": next}
	replace(t, k.path, edited(t, k.path, map[string]any{"forge": gh, "workers": 3}))
	s.eventually("two secrets", func() bool { return e.config.Load().Workers == 3 })
	more()
	sign("another secret")
	more()
	replace(t, filepath.Join(k.dir, "secret"), []byte("another secret"))
	more()
	for workers := 4; workers < 7; workers++ {
		replace(t, k.path, edited(t, k.path, map[string]any{"workers": workers}))
		s.eventually("gone on with", func() bool { return e.config.Load().Workers == workers })
		more()
	}
	close(stop)
	wg.Wait()
	s.eventually("dealt with", func() bool { return len(e.deliveries.Pending()) == 0 })
	s.cancel()
	after := told(t, filepath.Join(k.dir, "mirror"))
	require.Empty(t, after.deliveries.Pending())
	require.True(t, after.deliveries.Knows("0-0"))
}
