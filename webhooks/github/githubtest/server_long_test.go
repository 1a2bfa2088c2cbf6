//go:build long

package githubtest_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLongLargePush: beyond 1 MiB Git does not say how much it will send.
func TestLongLargePush(t *testing.T) {
	t.Parallel()
	s, w := start(t, nil)
	noise := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	head := w.commit("large", "noise.bin", string(noise))
	n, err := s.OpenPull("large", "large", "ana")
	require.NoError(t, err)
	p, ok := s.Pull(n)
	require.True(t, ok)
	require.Equal(t, head, p.Head)
}
