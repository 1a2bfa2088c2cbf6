//go:build long

package gitrepo_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
)

// berth/status moves while the mirror is damaged, for example after a failover.
// The mirror is still replaced: a lost status tip refuses nothing.
func TestLongDamagedMirrorIsReplacedAfterStatusMoved(t *testing.T) {
	t.Parallel()
	all := damages()
	all["a file is in its place"] = func(t *testing.T, m string) {
		require.NoError(t, os.RemoveAll(m))
		require.NoError(t, os.WriteFile(m, []byte("x"), 0o600))
	}
	for name, damage := range all {
		for _, running := range []bool{true, false} {
			t.Run(name+map[bool]string{true: " while open", false: " while closed"}[running], func(t *testing.T) {
				t.Parallel()
				s := gittest.New(t, estateFiles())
				dir := t.TempDir()
				in := func(o *gitrepo.Options) { o.Dir = dir }
				open(t, s, in).Close()
				r := open(t, s, in)
				main := fetch(t, r).Main
				status, err := r.WriteStatus(t.Context(), "", batch(1, main, unit("physics", "lhc", "train", plan.PhaseRunning)))
				require.NoError(t, err)
				inForce, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: main, Epoch: 3})
				require.NoError(t, err)
				// The status of a mirror that was fetched again is shallow.
				require.NoError(t, r.Close())
				require.NoError(t, os.RemoveAll(dir))
				r = open(t, s, in)
				require.Equal(t, status, fetch(t, r).Status)
				if !running {
					require.NoError(t, r.Close())
				}
				damage(t, filepath.Join(dir, "mirror.git"))
				other := open(t, s)
				fetch(t, other)
				for i := range 3 {
					status, err = other.WriteStatus(t.Context(), status,
						batch(uint64(2+i), main, unit("physics", "lhc", "train", plan.PhaseStopped)))
					require.NoError(t, err)
				}
				if running {
					r.Forget() // cached objects hide the damage
				} else {
					r = open(t, s, in)
				}

				healed := func() error {
					tips, err := r.Fetch(t.Context())
					if err != nil {
						return err
					}
					if want := (reconciler.Tips{Main: main, InForce: inForce, Status: status}); tips != want {
						return fmt.Errorf("%+v, not %+v", tips, want)
					}
					tree, err := r.ReadStatus(t.Context(), status)
					if err != nil {
						return err
					}
					require.Equal(t, plan.PhaseStopped, tree.Units.Get(unit("physics", "lhc", "train", "").Key).Phase)
					got, err := tryContents(t.Context(), r, inForce)
					if err != nil {
						return err
					}
					require.Equal(t, estateFiles(), got)
					status, err = r.WriteStatus(t.Context(), status, batch(9, main))
					return err
				}
				for range 3 {
					if err = healed(); err == nil {
						break
					}
				}
				require.NoError(t, err)
				tip, err := r.WriteInForce(t.Context(), inForce,
					reconciler.InForce{Commit: main, Epoch: 4, Replace: map[string]string{"platform/nodes/gpu-1.yaml": ""}})
				require.NoError(t, err)
				require.Equal(t, reconciler.Tips{Main: main, InForce: tip, Status: status}, fetch(t, r))
			})
		}
	}
}
