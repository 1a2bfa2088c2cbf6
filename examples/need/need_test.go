package need_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/need"
)

// skipped is a test that may be skipped.
type skipped struct {
	testing.TB
	why string
}

func (s *skipped) Skip(args ...any) { s.why, _ = args[0].(string) }

func TestMissingProgramIsTheReasonOfTheSkip(t *testing.T) {
	s := &skipped{TB: t}
	need.Programs(s, "sh")
	require.Empty(t, s.why)
	need.Programs(s, "sh", "no-such-program")
	require.Equal(t, "not run: it needs no-such-program, which is not installed", s.why)
	need.Programs(s, "no-such-program", "sh", "nor-this")
	require.Equal(t, "not run: it needs no-such-program, nor-this, which are not installed", s.why)
}
