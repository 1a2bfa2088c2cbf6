package pulls

// Pulls serves the pull requests of one estate. Make it with New.
type Pulls struct {
	RollOuts *RollOuts
	*Planner
	*Publisher
	*Reporter
	*Acknowledgements
	*Applies
	*CommandHandler
}

// New makes a Pulls.
func New(o Options) *Pulls {
	e := &env{Options: o, reviews: reviews{o.Status, o.Now}, open: newOpenPulls(o.Branch), began: o.Now()}
	p := &Pulls{
		RollOuts: newRollOuts(o.Now), Publisher: &Publisher{e, newPublishQueue()},
		Acknowledgements: &Acknowledgements{e, newPending[Acked, bool]()}, Applies: &Applies{e, newPending[Applying, outcome]()},
	}
	p.Reporter = &Reporter{e, p.RollOuts, p.Acknowledgements}
	p.Planner = &Planner{e, p.Publisher, p.Reporter, p.Acknowledgements, newJobs()}
	p.CommandHandler = newCommandHandler(newTable(&commands{e, p.Planner, p.RollOuts, p.Acknowledgements, p.Applies}))
	return p
}
