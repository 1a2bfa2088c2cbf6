package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

const (
	maxArgs       = 4096
	maxArgBytes   = 1 << 20
	maxRunTimeout = 30 * time.Minute
)

// programs runs the programs of the profiles.
type programs struct {
	allow *allowList
	users users
}

// run runs a program of the profile with the arguments as they are and a new
// environment.
func (p programs) run(ctx context.Context, op *runtimes.Run) (runtimes.Result, error) {
	prog, ok := p.allow.program(op.Program)
	if !ok {
		return runtimes.Result{}, refuse("this host's profile has no program %s", plain(op.Program))
	}
	if err := checkRun(prog, op); err != nil {
		return runtimes.Result{}, err
	}
	credential, err := p.credential(ctx, prog, op.As)
	if err != nil {
		return runtimes.Result{}, err
	}
	env, err := environment(prog, op)
	if err != nil {
		return runtimes.Result{}, err
	}
	timeout := 10 * time.Second
	if op.TimeoutMS != 0 {
		timeout = time.Duration(op.TimeoutMS) * time.Millisecond
	}
	if timeout <= 0 || timeout > maxRunTimeout {
		return runtimes.Result{}, invalid("the timeout of a program is at most %s", maxRunTimeout)
	}
	if file, given := op.Env[prog.Config]; given {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return ended(op, runtimes.Result{Exit: 1, Stderr: []byte(file + " is missing")})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	stdout, stderr := &bound{left: maxOutput, over: cancel}, &bound{left: 64 << 10}
	cmd := exec.CommandContext(ctx, prog.Path, op.Args...)
	cmd.Dir, cmd.Env = "/", env
	cmd.Stdout, cmd.Stderr = stdout, stderr
	end, err := giveInput(cmd, prog, op, credential)
	if err != nil {
		return runtimes.Result{}, err
	}
	defer end()
	// Its own process group, to kill its children too. It dies with this process, as
	// no program may act for an epoch that has been left.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: credential}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 500 * time.Millisecond
	// The kernel sends Pdeathsig when the thread ends, so keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if credential != nil {
		// A job gets the umask of the program that submits it, and writes its output for its owner only.
		restore, err := private()
		if err != nil {
			return runtimes.Result{}, &Fault{Code: runtimes.CodeIO, Message: err.Error()}
		}
		defer restore()
	}
	err = cmd.Run()
	res := runtimes.Result{Data: stdout.buf.Bytes(), Stderr: stderr.buf.Bytes()}
	switch state := cmd.ProcessState; {
	case stdout.full:
		return runtimes.Result{}, &Fault{Code: runtimes.CodeOutput, Message: "printed more than 8 MiB"}
	case state == nil:
		return runtimes.Result{}, &Fault{Code: runtimes.CodeIO, Message: err.Error()}
	case !state.Exited() && ctx.Err() != nil:
		return runtimes.Result{}, &Fault{Code: runtimes.CodeTimeout,
			Message: strings.TrimSuffix("did not end within "+timeout.String()+": "+output(res), ": ")}
	case !state.Exited():
		return runtimes.Result{}, &Fault{Code: runtimes.CodeIO, Message: strings.TrimSuffix(state.String()+": "+output(res), ": ")}
	}
	// The program has exited. A child that keeps its output open is not waited for.
	res.Exit = cmd.ProcessState.ExitCode()
	return ended(op, res)
}

// ended is the result of a program that has exited.
func ended(op *runtimes.Run, res runtimes.Result) (runtimes.Result, error) {
	if res.Exit != 0 && !op.AllowExit {
		return runtimes.Result{}, &Fault{Code: runtimes.CodeExit, Exit: res.Exit, Message: output(res)}
	}
	return res, nil
}

// private makes the umask of this thread 077, until restore. The caller has locked the thread.
func private() (restore func(), err error) {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // threads share a umask otherwise
		return nil, fmt.Errorf("umask: %w", err)
	}
	before := unix.Umask(0o077)
	return func() { unix.Umask(before) }, nil
}

// checkRun checks arguments and input as the profile says.
func checkRun(prog runtimes.Program, op *runtimes.Run) error {
	if err := checkArgs(op.Args); err != nil {
		return err
	}
	if prog.Check != nil {
		if err := prog.Check(op.Args); err != nil {
			return refuse("%s: %v", plain(op.Program), err)
		}
	}
	switch {
	case op.StdinFile != "":
		if len(op.Stdin) > 0 || prog.StdinFiles == nil || !prog.StdinFiles.MatchString(op.StdinFile) {
			return refuse("%s: input from %s not allowed", plain(op.Program), plain(op.StdinFile))
		}
	case prog.CheckStdin != nil:
		if err := prog.CheckStdin(op.Stdin); err != nil {
			return refuse("%s: %v", plain(op.Program), err)
		}
	case len(op.Stdin) > 0 && !prog.AsPerson:
		return refuse("%s: input not allowed", plain(op.Program))
	}
	if prog.Scripts == nil && op.Script != "" || prog.Scripts != nil && !whole(prog.Scripts, op.Script) {
		return refuse("%s: script %s not allowed", plain(op.Program), plain(op.Script))
	}
	return nil
}

// environment returns baseEnv with the variables of the request that the profile
// allows.
func environment(prog runtimes.Program, op *runtimes.Run) ([]string, error) {
	env := baseEnv()
	if prog.AsPerson {
		env = nil // it may pass its own environment to programs that it starts for the person
	}
	given, err := variables(op.Program, op.Env, prog.Env)
	return slices.Sorted(slices.Values(append(env, given...))), err
}

// variables returns the variables of a request as NAME=value, sorted, if patterns allow all of them.
func variables(program string, values map[string]string, patterns map[string]*regexp.Regexp) ([]string, error) {
	var all []string
	for name, value := range values {
		pattern, ok := patterns[name]
		if !ok || strings.ContainsRune(value, 0) {
			return nil, refuse("%s: environment variable %s not allowed", plain(program), plain(name))
		}
		if !whole(pattern, value) {
			return nil, refuse("%s: environment variable %s: value %s not allowed", plain(program), plain(name), plain(value))
		}
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all, nil
}

// whole reports whether a pattern matches all of a text.
func whole(pattern *regexp.Regexp, text string) bool {
	m := pattern.FindStringIndex(text)
	return m != nil && m[0] == 0 && m[1] == len(text)
}

// credential returns the account of a program; nil: that of this process.
func (p programs) credential(ctx context.Context, prog runtimes.Program, as *runtimes.Person) (*syscall.Credential, error) {
	switch {
	case as == nil && !prog.AsPerson:
		return nil, nil
	case as == nil:
		return nil, refuse("the program runs as a person, but the request names none")
	case !prog.AsPerson:
		return nil, refuse("the program does not run as another account")
	}
	u, err := p.users.person(ctx, *as)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}, nil
}

// output returns the message of a program: its stderr, or else its stdout.
func output(r runtimes.Result) string {
	if msg := bounded(r.Stderr); msg != "" {
		return msg
	}
	return bounded(r.Data)
}

func checkArgs(args []string) error {
	if len(args) > maxArgs {
		return invalid("more than %d arguments", maxArgs)
	}
	total := 0
	for _, arg := range args {
		total += len(arg)
		if strings.ContainsRune(arg, 0) {
			return refuse("an argument contains a NUL character")
		}
	}
	if total > maxArgBytes {
		return invalid("the arguments are longer than %d bytes", maxArgBytes)
	}
	return nil
}

// bound keeps the first bytes written to it and calls over at the first excess. It
// does not embed bytes.Buffer, whose ReadFrom has no bound.
type bound struct {
	buf  bytes.Buffer
	left int
	full bool
	over func()
}

func (b *bound) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	_, _ = b.buf.Write(p[:n])
	if n < len(p) && !b.full {
		b.full = true
		if b.over != nil {
			b.over()
		}
	}
	return len(p), nil
}
