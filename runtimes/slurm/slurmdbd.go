package slurm

import (
	"cmp"
	"context"
	"errors"

	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

// awaitSlurmdbd waits until slurmdbd answers, or has ended. It listens some time after its start, and slurmdbd 26.05
// refuses connections for a moment after it accepted the first one.
func (c controlDaemons) awaitSlurmdbd(ctx context.Context) error {
	question := askSlurmdbd(c.control)
	return c.env.poll(ctx, "slurmdbd on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, c.service(profile.Slurmdbd, "state"), question)
		switch {
		case len(res) > 0 && !res[0].Service.Running:
			return false, "", errors.New(c.whyEnded(profile.Slurmdbd, res[0]))
		case timedOut(err): // a slow host
			return false, err.Error(), nil
		case err != nil:
			return false, "", err
		}
		return res[1].Exit == 0, c.exitError(question, res[1]).Error(), nil
	})
}

// whyEnded describes the end of a daemon of the control stack by its state.
func (c controlDaemons) whyEnded(name string, state runtimes.Result) string {
	return name + " ended: " + cmp.Or(state.Service.Detail, "its log gives no reason: "+c.stack.Log()+"/"+name+".log")
}
