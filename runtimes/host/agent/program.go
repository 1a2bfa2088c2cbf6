package agent

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"berth/runtimes"
)

const (
	maxArgs       = 4096
	maxArgBytes   = 1 << 20
	maxRunTimeout = 30 * time.Minute
)

// baseEnv is all that a program or daemon has of an environment, but for what
// its profile says.
func baseEnv() []string {
	return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "HOME=/"}
}

func (a *Agent) program(name string) (runtimes.Program, bool) {
	for _, p := range a.profiles {
		if prog, ok := p.Programs[name]; ok {
			return prog, true
		}
	}
	return runtimes.Program{}, false
}

// run runs a program of the profile: its path is the profile's, its arguments
// go to it as they are, and its environment is made here.
func (a *Agent) run(ctx context.Context, op *runtimes.Run) (runtimes.Result, error) {
	var res runtimes.Result
	prog, ok := a.program(op.Program)
	if !ok {
		return res, refuse("this host's profile has no program %s", plain(op.Program))
	}
	if err := checkArgs(op.Args); err != nil {
		return res, err
	}
	if prog.Check != nil {
		if err := prog.Check(op.Args); err != nil {
			return res, refuse("%s: %v", plain(op.Program), err)
		}
	}
	switch {
	case prog.CheckStdin != nil:
		if err := prog.CheckStdin(op.Stdin); err != nil {
			return res, refuse("%s: %v", plain(op.Program), err)
		}
	case len(op.Stdin) > 0 && !prog.AsPerson:
		return res, refuse("%s takes no input", plain(op.Program))
	}
	credential, err := a.credential(ctx, prog, op.As)
	if err != nil {
		return res, err
	}
	env := baseEnv()
	for name, value := range op.Env {
		pattern, ok := prog.Env[name]
		if !ok || strings.ContainsRune(value, 0) {
			return res, refuse("%s: the environment may not set %s", plain(op.Program), plain(name))
		}
		if m := pattern.FindStringIndex(value); m == nil || m[0] != 0 || m[1] != len(value) {
			return res, refuse("%s: the environment may not set %s to %s", plain(op.Program), plain(name), plain(value))
		}
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	timeout := 10 * time.Second
	if op.TimeoutMS != 0 {
		timeout = time.Duration(op.TimeoutMS) * time.Millisecond
	}
	if timeout <= 0 || timeout > maxRunTimeout {
		return res, invalid("a program's timeout is up to %s", maxRunTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	stdout, stderr := &bound{left: maxOutput, over: cancel}, &bound{left: 64 << 10}
	cmd := exec.CommandContext(ctx, prog.Path, op.Args...)
	cmd.Dir, cmd.Env = "/", env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(op.Stdin), stdout, stderr
	// A group of its own, so that its children are killed with it; and killed
	// with this process, as nothing may act for an epoch that has been left.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: credential}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 500 * time.Millisecond
	// The signal comes when the thread ends, not the process: keep it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	res.Data, res.Stderr = stdout.buf.Bytes(), stderr.buf.Bytes()
	switch state := cmd.ProcessState; {
	case stdout.full:
		return runtimes.Result{}, &Fault{Code: CodeIO, Message: "printed more than 4 MiB"}
	case state == nil:
		return runtimes.Result{}, &Fault{Code: CodeIO, Message: err.Error()}
	case !state.Exited() && ctx.Err() != nil:
		return runtimes.Result{}, &Fault{Code: CodeTimeout, Message: strings.TrimSuffix("did not end within "+timeout.String()+": "+said(res), ": ")}
	case !state.Exited():
		return runtimes.Result{}, &Fault{Code: CodeIO, Message: strings.TrimSuffix(state.String()+": "+said(res), ": ")}
	case state.ExitCode() != 0 && !op.AllowExit:
		return runtimes.Result{}, &Fault{Code: CodeExit, Exit: state.ExitCode(), Message: said(res)}
	}
	// It has ended by itself; a child of it that holds its output open is not waited for.
	res.Exit = cmd.ProcessState.ExitCode()
	return res, nil
}

// credential is whom a program runs as; nil: as this process.
func (a *Agent) credential(ctx context.Context, prog runtimes.Program, as *runtimes.Person) (*syscall.Credential, error) {
	switch {
	case as == nil && !prog.AsPerson:
		return nil, nil
	case as == nil:
		return nil, refuse("the program runs as a person, and none is named")
	case !prog.AsPerson:
		return nil, refuse("the program runs as nobody else")
	}
	u, err := a.person(ctx, *as)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}, nil
}

// said is what a program printed to explain itself.
func said(r runtimes.Result) string {
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
			return refuse("an argument holds a NUL")
		}
	}
	if total > maxArgBytes {
		return invalid("the arguments are longer than %d bytes", maxArgBytes)
	}
	return nil
}

// bound keeps the first bytes written to it, and calls over for the rest. It is
// no bytes.Buffer itself, whose other ways of being filled have no bound.
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
