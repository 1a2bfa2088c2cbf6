package command_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/command"
	"berth/schema"
)

func TestParse(t *testing.T) {
	train := schema.InstanceKey("physics", "lab", "train")
	for line, want := range map[string]command.Command{
		"/berth":                 {Verb: command.Help},
		"/berth help":            {Verb: command.Help},
		"  /berth\tPLAN ":        {Verb: command.Plan},
		"/berth retry":           {Verb: command.Retry},
		"/berth apply 1F0C9aa":   {Verb: command.Apply, Bound: "1f0c9aa"},
		"/berth apply `1f0c9aa`": {Verb: command.Apply, Bound: "1f0c9aa"},
		"/berth apply 1f0c9aa Break-Glass: disk on fire": {Verb: command.Apply, Bound: "1f0c9aa", Reason: "disk on fire"},
		"/berth ack-delete 0123456789abcdef":             {Verb: command.AckDelete, Bound: "0123456789abcdef"},
		"/berth explain physics.lab/train":               {Verb: command.Explain, Instance: train},
		"/berth explain `physics.lab/train` config":      {Verb: command.Explain, Instance: train, Field: "config"},
	} {
		c, err := command.Parse(line)
		require.NoError(t, err, line)
		require.Equal(t, want, c, line)
	}
	for line, want := range map[string]string{
		"/berth apply":                         "/berth apply COMMIT",
		"/berth apply 1f0c9a":                  "first 7 or more",
		"/berth apply main":                    "needs a commit",
		"/berth apply 1f0c9aa now":             "/berth apply COMMIT",
		"/berth apply 1f0c9aa break-glass:":    "Break-Glass: REASON",
		"/berth ack-delete":                    "/berth ack-delete DIGEST",
		"/berth ack-delete all of it":          "/berth ack-delete DIGEST",
		"/berth ack-delete everything":         "no digest",
		"/berth plan it":                       "no arguments: /berth plan",
		"/berth explain train":                 "TENANT.PROJECT/INSTANCE",
		"/berth explain a.b/../../etc":         "TENANT.PROJECT/INSTANCE",
		"/berth explain a.b/c x y":             "TENANT.PROJECT/INSTANCE",
		"/berth explain a.b/c <script>":        "no field",
		"/berth destroy":                       "help",
		"/berth " + strings.Repeat("x", 70000): "longer",
	} {
		_, err := command.Parse(line)
		require.ErrorContains(t, err, want, line)
		require.NotContains(t, err.Error(), "script")
	}
	for _, line := range []string{"", "/berthing is fun", "please /berth apply 1f0c9aa", "/ berth help", "/BERTH help", "`/berth help`"} {
		_, err := command.Parse(line)
		require.ErrorIs(t, err, command.ErrOther, line)
	}
}

// Every verb of the help is a command.
func TestUsagesAreCommands(t *testing.T) {
	for _, u := range command.Usages() {
		args := map[command.Verb]string{command.Apply: "1f0c9aa", command.AckDelete: "0123456789abcdef", command.Explain: "a.b/c"}[u.Verb]
		c, err := command.Parse("/berth " + string(u.Verb) + " " + args)
		require.NoError(t, err)
		require.Equal(t, u.Verb, c.Verb)
		require.Equal(t, u.Args == "", args == "")
	}
}

func TestBoundIdentifiesACommit(t *testing.T) {
	c := command.Command{Bound: "1f0c9aa"}
	require.True(t, c.Names("1F0C9AA0b7"))
	require.False(t, c.Names("1f0c9a"))
	require.False(t, command.Command{}.Names("1f0c9aa0b7"))
}

// An error quotes nothing of the line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"/berth apply 1f0c9aa", "/berth explain a.b/c d", "/berth \x00", "/berth @all <!--"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c, err := command.Parse(line)
		if err != nil {
			require.False(t, strings.ContainsAny(err.Error(), "<>`@\n\x00"))
			return
		}
		require.NotEmpty(t, c.Verb)
		require.LessOrEqual(t, len(c.Bound), 64)
	})
}
