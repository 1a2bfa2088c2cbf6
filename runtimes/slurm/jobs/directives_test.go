package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/profile"
	"berth/schema"
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
		err := directivesOf(script).check(queue.Request{})
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
		require.NoError(t, directivesOf(script).check(queue.Request{}), name)
	}
}

// Options are found in each form that sbatch reads, and the last one holds.
func TestOptionsOfAScript(t *testing.T) {
	for line, want := range map[string]string{
		"-o a.out":                       "a.out",
		"-oa.out":                        "a.out",
		"-HQo a.out":                     "a.out",
		"--output=a.out":                 "a.out",
		"--output a.out":                 "a.out",
		"--outp 'a b.out'":               "a b.out",
		"-o first\n#SBATCH -o a.out":     "a.out",
		"-n 2 -J x # a note\n#SLURM -oa": "a",
		"--open-mode=append":             "",
		"-J name":                        "",
		"-Jo":                            "",
		"\ntrue\n#SBATCH -o a.out":       "",
	} {
		value, at := directivesOf("#!/bin/sh\n#SBATCH "+line+"\n").get("output", 'o')
		require.Equal(t, want, value, line)
		require.Equal(t, want != "", at > 0, line)
	}
	both := directivesOf("#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -o of-the-second\n")
	_, at := both.firstPart().get("output", 'o')
	require.Zero(t, at)
}

// GPUs of the request would be added to those of the script, as --gpus and --gres are two options of sbatch.
func TestGPUsAreAskedForOnce(t *testing.T) {
	for _, line := range []string{"-G 2", "--gpus=2", "--gpus-per-node=1", "--gpus-per-task 1", "--gpus-per-s=1"} {
		require.ErrorIs(t, directivesOf("#!/bin/sh\n#SBATCH "+line+"\n").check(queue.Request{GPUs: 1}), queue.ErrDenied, line)
		require.NoError(t, directivesOf("#!/bin/sh\n#SBATCH "+line+"\n").check(queue.Request{}), line)
	}
	require.ErrorContains(t, directivesOf("#!/bin/sh\n#SBATCH --mem-per-cpu=1G\n").check(queue.Request{MemoryMiB: 1}),
		"line 2 of the script has --mem-per-cpu, and the request has memory as well")
	require.NoError(t, directivesOf("#!/bin/sh\n#SBATCH --mem=1G\n").check(queue.Request{MemoryMiB: 1}), "--mem of the command replaces it")
	require.NoError(t, directivesOf("#!/bin/sh\n#SBATCH --gres=gpu:2 --gpu-bind=none --gpu-freq=high\n").check(queue.Request{GPUs: 1}),
		"--gres of the command replaces it")
}

// The directory and the output in the script's directives hold, unless the request sets others.
func TestPlacesOfAJob(t *testing.T) {
	const own = "--chdir=/var/lib/slurm/berth-jobs/north/ada-1000"
	c := &cluster{stack: profile.Stack{Cluster: "north"}}
	for lines, want := range map[string][]string{
		"":                                {own, "--output=slurm-%j.out"},
		"-a 1-3":                          {own, "--output=slurm-%A_%a.out"},
		"-D /data -o x-%5j":               {"--output=x-%5j"},
		"-D /data/a -o ../logs/%j":        {"--output=/data/logs/%j"},
		"-D /data -o 'x y'":               nil, // berth-host does not let it through as an option; the script has it
		"--chdir=sub/dir --export none":   {own + "/sub/dir", "--output=slurm-%j.out", "--export=ALL"},
		"--export=ALL,X=1":                {own, "--output=slurm-%j.out"},
		"-n1\n#PBS -o /tmp/x\n#PBS -d /w": {"--output=/tmp/x"},
		"-n1\n#BSUB -cwd /w":              {"--output=slurm-%j.out"},
	} {
		s := queue.Submission{User: schema.UnixUser{Name: "ada", UID: 1000},
			Request: queue.Request{Script: "#!/bin/sh\n#SBATCH " + lines + "\n"}}
		args, err := c.places(s)
		require.NoError(t, err, lines)
		require.Equal(t, want, args, lines)
		s.WorkDir = "/scratch"
		args, err = c.places(s)
		require.NoError(t, err)
		require.Equal(t, "--chdir=/scratch", args[0], lines)
	}
	for _, dir := range []string{"../other", "'a b'", ".."} {
		_, err := c.places(queue.Submission{User: schema.UnixUser{Name: "ada", UID: 1000},
			Request: queue.Request{Script: "#!/bin/sh\n#SBATCH -D " + dir + "\n"}})
		require.ErrorIs(t, err, queue.ErrDenied, dir)
		require.ErrorContains(t, err, "line 2 of the script names the directory", dir)
	}
}
