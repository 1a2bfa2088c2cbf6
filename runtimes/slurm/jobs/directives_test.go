package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/queue"
)

// sbatch does not wait for the end of a job here, in whatever form a script asks for it.
func TestScriptThatWaitsIsRefused(t *testing.T) {
	for name, script := range map[string]string{
		"long":              "#!/bin/sh\n#SBATCH --wait\nexit 4\n",
		"short":             "#!/bin/sh\n#SBATCH -W\n",
		"after other lines": "#!/bin/sh\n# A note\n\n#SBATCH --ntasks=2 --wait # for CI\n",
		"in a group":        "#!/bin/sh\n#SBATCH -HW\n",
		"before another":    "#!/bin/sh\n#SBATCH -WJname\n",
		"in quotes":         "#!/bin/sh\n#SBATCH \"--wait\"\n",
		"with a CR":         "#!/bin/sh\r\n#SBATCH --wait\r\n",
		"without a newline": "#!/bin/sh\n#SBATCH --wait",
		"below a comment":   "#!/bin/sh\n  # a note\n#SBATCH --wait\n",
		"the older prefix":  "#!/bin/sh\n#SLURM --wait\n",
		"quotes within":     "#!/bin/sh\n#SBATCH --wa\"\"it\n",
		"a backslash":       "#!/bin/sh\n#SBATCH --wai\\t\n",
		"short in quotes":   "#!/bin/sh\n#SBATCH -''W\n",
		"before a comment":  "#!/bin/sh\n#SBATCH --wait#x\n",
	} {
		err := checkDirectives(script)
		require.ErrorIs(t, err, queue.ErrDenied, name)
		require.Regexp(t, `line \d of the script has `, err.Error(), name)
	}
	for name, script := range map[string]string{
		"none":              "#!/bin/sh\nsleep 1\n",
		"after a command":   "#!/bin/sh\ntrue\n#SBATCH --wait\n",
		"another option":    "#!/bin/sh\n#SBATCH --wait-all-nodes=1 -JWork -J W\n",
		"a comment":         "#!/bin/sh\n#SBATCH --ntasks=1 # --wait\n##SBATCH --wait\n",
		"a text with it":    "#!/bin/sh\n#SBATCH --comment=\"use -W now\" --comment='or --wait'\n",
		"of another prefix": "#!/bin/sh\n# SBATCH --wait\n",
	} {
		require.NoError(t, checkDirectives(script), name)
	}
}
