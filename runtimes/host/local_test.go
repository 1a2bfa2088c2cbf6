package host

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host/agent"
)

// MaxSessions is the number of parallel sessions with a host for one tenant.
const MaxSessions = sessionsOfTenant

const sessionsOfTenant = maxSessions * 3 / 4 // of the only one

// Local hosts run the agent on this machine, so that tests compare the transports.

// NewInProcess returns hosts whose agent serves in this process.
func NewInProcess(a *agent.Agent) runtimes.Hosts {
	return newHosts(func(plan.Member) opener {
		ctx, cancel := context.WithCancel(context.Background())
		return &inProcess{agent: a, ctx: ctx, cancel: cancel}
	})
}

// NewSubprocess returns hosts whose helper is a command on this machine.
func NewSubprocess(command ...string) runtimes.Hosts {
	return newHosts(func(plan.Member) opener {
		return &subprocess{command: command, running: map[*exec.Cmd]struct{}{}}
	})
}

// inProcess serves sessions in goroutines.
type inProcess struct {
	agent   *agent.Agent
	ctx     context.Context // of the agent's work
	cancel  context.CancelFunc
	serving sync.WaitGroup
}

func (p *inProcess) open(ctx context.Context) (*session, error) {
	fromUs, in := io.Pipe()
	out, toUs := io.Pipe()
	life, end := context.WithCancel(p.ctx)
	over := make(chan struct{})
	p.serving.Go(func() {
		defer close(over)
		defer end()
		err := p.agent.Serve(life, fromUs, toUs)
		_ = toUs.CloseWithError(err)
		_ = fromUs.Close()
	})
	s := newSession(in, out, &stderrText{}, over, func() {
		end()
		_ = in.Close()
		_ = out.Close()
	})
	if err := s.readHello(ctx); err != nil {
		s.hangUp()
		return nil, err
	}
	return s, nil
}

func (p *inProcess) close() {
	p.cancel()
	p.serving.Wait()
}

// subprocess serves each session in a process.
type subprocess struct {
	command []string
	mu      sync.Mutex
	running map[*exec.Cmd]struct{}
	closed  bool
	reaped  sync.WaitGroup
}

func (p *subprocess) open(ctx context.Context) (*session, error) {
	cmd := exec.Command(p.command[0], p.command[1:]...)
	stderr := &stderrText{}
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// The helper notices when this side closes the pipe, and ends.
	out, toUs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = toUs
	over := make(chan struct{})
	if err := p.start(cmd, toUs, over); err != nil {
		_ = toUs.Close()
		_ = out.Close()
		return nil, err
	}
	s := newSession(in, out, stderr, over, func() {
		_ = in.Close()
		_ = out.Close()
	})
	if err := s.readHello(ctx); err != nil {
		s.hangUp()
		_ = cmd.Process.Kill() // it is not a helper
		return nil, err
	}
	return s, nil
}

// start starts a helper. When it ends, it closes over and then the helper's output, so that
// the session ends with all that the helper printed.
func (p *subprocess) start(cmd *exec.Cmd, output io.Closer, over chan<- struct{}) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running[cmd] = struct{}{}
	p.reaped.Go(func() {
		defer output.Close() //nolint:errcheck // a test's
		defer close(over)
		_ = cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.running, cmd)
	})
	return nil
}

// SessionsEnded reports whether every session that h keeps has ended.
func SessionsEnded(h runtimes.Host) bool {
	r := h.(*remote)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.idle {
		select {
		case <-s.dead:
		default:
			return false
		}
	}
	return true
}

// grace is the time in which a helper has to end after its session is closed.
const grace = 2 * time.Second

func (p *subprocess) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		p.reaped.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-time.After(grace): // the moment of the kill
	}
	p.mu.Lock()
	for cmd := range p.running {
		_ = cmd.Process.Kill()
	}
	p.mu.Unlock()
	<-done
}
