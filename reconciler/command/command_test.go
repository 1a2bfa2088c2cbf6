package command_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/command"
	"berth/schema"
)

func table() []command.Verb {
	return []command.Verb{
		{Name: "help"},
		{Name: "plan"},
		{Name: "apply", Args: []command.Argument{{Name: "COMMIT", Parse: command.Commit}}, BreakGlass: true},
		{Name: "ack-delete", Args: []command.Argument{{Name: "DIGEST", Parse: command.Digest}}},
		{Name: "explain", Args: []command.Argument{{Name: "INSTANCE", Parse: command.Instance},
			{Name: "FIELD", Parse: command.Field, Optional: true}}},
	}
}

func TestParseFollowsTheTable(t *testing.T) {
	for line, want := range map[string]command.Command{
		"/berth":                 {Verb: "help"},
		"/berth help":            {Verb: "help", Args: []string{}},
		"  /berth\tPLAN ":        {Verb: "plan", Args: []string{}},
		"/berth apply 1F0C9aa":   {Verb: "apply", Args: []string{"1f0c9aa"}},
		"/berth apply `1f0c9aa`": {Verb: "apply", Args: []string{"1f0c9aa"}},
		"/berth apply 1f0c9aa Break-Glass: disk on fire": {Verb: "apply", Args: []string{"1f0c9aa"}, Reason: "disk on fire"},
		"/berth ack-delete 0123456789abcdef":             {Verb: "ack-delete", Args: []string{"0123456789abcdef"}},
		"/berth explain physics.lab/train":               {Verb: "explain", Args: []string{"physics.lab/train", ""}},
		"/berth explain `physics.lab/train` config":      {Verb: "explain", Args: []string{"physics.lab/train", "config"}},
	} {
		c, err := command.Parse(line, table())
		require.NoError(t, err, line)
		require.Equal(t, want, c, line)
	}
	key, ok := command.InstanceKey("physics.lab/train")
	require.True(t, ok)
	require.Equal(t, schema.InstanceKey("physics", "lab", "train"), key)
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	for line, want := range map[string]string{
		"/berth apply":                         "usage: /berth apply COMMIT [Break-Glass: REASON]",
		"/berth apply 1f0c9a":                  "first 7 or more digits",
		"/berth apply main":                    "COMMIT must be",
		"/berth apply 1f0c9aa now":             "usage: /berth apply COMMIT",
		"/berth apply 1f0c9aa break-glass:":    "Break-Glass: REASON",
		"/berth ack-delete":                    "usage: /berth ack-delete DIGEST",
		"/berth ack-delete all of it":          "usage: /berth ack-delete DIGEST",
		"/berth ack-delete everything":         "DIGEST must be",
		"/berth plan it":                       "usage: /berth plan",
		"/berth explain train":                 "TENANT.PROJECT/NAME",
		"/berth explain a.b/../../etc":         "TENANT.PROJECT/NAME",
		"/berth explain a.b/c x y":             "usage: /berth explain INSTANCE [FIELD]",
		"/berth explain a.b/c <script>":        "FIELD must be",
		"/berth destroy":                       "unknown command; /berth help",
		"/berth " + strings.Repeat("x", 70000): "longer",
	} {
		_, err := command.Parse(line, table())
		require.ErrorContains(t, err, want, line)
		require.NotContains(t, err.Error(), "script")
	}
	for _, line := range []string{"", "/berthing is fun", "please /berth apply 1f0c9aa", "/ berth help", "/BERTH help", "`/berth help`"} {
		_, err := command.Parse(line, table())
		require.ErrorIs(t, err, command.ErrOther, line)
	}
}

// An error contains nothing of the line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"/berth apply 1f0c9aa", "/berth explain a.b/c d", "/berth \x00", "/berth @all <!--"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c, err := command.Parse(line, table())
		if err != nil {
			require.False(t, strings.ContainsAny(err.Error(), "<>`@\n\x00"))
			return
		}
		require.NotEmpty(t, c.Verb)
		require.LessOrEqual(t, len(strings.Join(c.Args, "")), 512)
	})
}
