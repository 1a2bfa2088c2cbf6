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

// Timeout bounds one run of the git program; it works on local files.
const Timeout = time.Minute

// MaxMemory bounds one allocation of a merge, which holds files whole.
const MaxMemory = 4 * MaxObject

// indexPack runs git index-pack, which takes a pack into the repository dir,
// within the memory given in bytes for any one object (0: no bound), and, if it
// is strict, only if git finds no fault with any of the objects. What an
// interrupted run leaves is cleared away.
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

// Run runs git without input, for gitTimeout at most.
func Run(ctx context.Context, env []string, args ...string) (stdout string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return Execute(ctx, nil, env, args...)
}

// Execute runs git with nothing of the user's environment but PATH.
func Execute(ctx context.Context, stdin io.Reader, env []string, args ...string) (stdout string, code int, err error) {
	var out bytes.Buffer
	code, err = ExecTo(ctx, stdin, &out, env, args...)
	if err != nil {
		return "", 0, err
	}
	return out.String(), code, nil
}

// ExecTo is execGit with its output going to out.
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

// command is the name of the git program that args run.
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

// Check says whether the git program can merge without a work tree.
func Check() error {
	out, _, err := Run(context.Background(), nil, "version")
	if err != nil {
		return fmt.Errorf("the git program is needed to merge: %w; install git 2.38 or newer", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(out, "git version %d.%d", &major, &minor); err != nil {
		return fmt.Errorf("git version cannot be told from %q", OneLine(out, 80))
	}
	if major < 2 || (major == 2 && minor < 38) {
		return fmt.Errorf("git %d.%d cannot merge without a work tree; install 2.38 or newer", major, minor)
	}
	return nil
}

// Died returns true if a git program could not go on with what it found. It
// returns false for one that is missing, too old, or was killed.
func Died(err error) bool {
	const status = 128
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == status
}

// AllocLimit bounds the memory that git takes at once, in bytes: a few bytes of a
// pull request may unfold to a file that no machine holds.
func AllocLimit(n int64) string { return "GIT_ALLOC_LIMIT=" + strconv.FormatInt(n, 10) }
