package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Timeout bounds one run of the git program on local files.
const Timeout = time.Minute

// MaxMemory bounds one allocation of a merge. A merge holds whole files in
// memory.
const MaxMemory = 4 * MaxObject

// indexPack runs git index-pack, which stores a pack in the repository dir.
// memory bounds the bytes allocated for one object; 0 means no bound. In strict
// mode git checks every object and rejects the pack if a check fails. After a
// failed run indexPack removes the temporary files.
func indexPack(ctx context.Context, dir string, pack io.Reader, memory int64, strict bool) error {
	env := []string{"GIT_DIR=" + dir}
	if memory > 0 {
		env = append(env, AllocLimit(memory))
	}
	// Large blobs are streamed; two threads would need twice the memory.
	args := []string{"-c", "core.bigFileThreshold=1m", "-c", "pack.threads=1", "index-pack", "--stdin"}
	if strict {
		args = append(args, "--strict")
	}
	_, code, err := Execute(ctx, pack, env, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("git index-pack ended with status %d", code)
	}
	if err != nil {
		err = errors.Join(err, ClearLeft(dir))
	}
	return err
}

// Run runs git without input, for Timeout at most.
func Run(ctx context.Context, env []string, args ...string) (stdout string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return Execute(ctx, nil, env, args...)
}

// Execute runs git and returns its output. Of the user's environment git sees
// only PATH.
func Execute(ctx context.Context, stdin io.Reader, env []string, args ...string) (stdout string, code int, err error) {
	var out bytes.Buffer
	code, err = ExecTo(ctx, stdin, &out, env, args...)
	if err != nil {
		return "", 0, err
	}
	return out.String(), code, nil
}

// ExecTo is Execute with the output written to out.
func ExecTo(ctx context.Context, stdin io.Reader, out io.Writer, env []string, args ...string) (code int, err error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	var problem bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, out, &problem
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("git %s: %w: %s", command(args), errors.Join(err, ctx.Err()), OneLine(problem.String(), 500))
	}
	return 0, nil
}

// command returns the name of the git subcommand in args.
func command(args []string) string {
	for len(args) > 2 && strings.HasPrefix(args[0], "-") {
		args = args[2:]
	}
	return args[0]
}

// FileExists says whether a path exists.
func FileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Check returns an error if the git program cannot merge without a work tree.
func Check() error {
	out, _, err := Run(context.Background(), nil, "version")
	if err != nil {
		return fmt.Errorf("the git program is needed to merge: %w; install git 2.38 or newer", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(out, "git version %d.%d", &major, &minor); err != nil {
		return fmt.Errorf("git version is not recognized: %q", OneLine(out, 80))
	}
	if major < 2 || (major == 2 && minor < 38) {
		return fmt.Errorf("git %d.%d cannot merge without a work tree; install 2.38 or newer", major, minor)
	}
	return nil
}

// Died reports whether git stopped with a fatal error because of its input. It
// returns false if git is missing, is too old or was killed.
func Died(err error) bool {
	const status = 128
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == status
}

// AllocLimit limits one memory allocation of git to n bytes. A few bytes in a
// pull request may expand to a file larger than the machine's memory.
func AllocLimit(n int64) string { return "GIT_ALLOC_LIMIT=" + strconv.FormatInt(n, 10) }
