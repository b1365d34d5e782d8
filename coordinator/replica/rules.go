package replica

// The rules that tests can switch off, one at a time, by Options.Break. Each
// removal must be caught by a global property of the simulator or the model;
// the daemon never sets it.
const (
	// BreakSyncBeforeAck acknowledges what is not durable yet.
	BreakSyncBeforeAck = "sync-before-ack"
	// BreakEpochCheck lets a replica answer epochs below its promise.
	BreakEpochCheck = "epoch-check"
	// BreakMaximalISR forgets proposals whose answer is unknown.
	BreakMaximalISR = "maximal-isr"
	// BreakMarkerGate serves before the marker is committed.
	BreakMarkerGate = "marker-gate"
	// BreakDupCRC takes equal (epoch, offset) for an equal batch, or any batch
	// at that offset, without comparing the checksum.
	BreakDupCRC = "dup-crc"
	// BreakRollbackEpoch takes puts back without winning a new epoch.
	BreakRollbackEpoch = "rollback-epoch"
	// BreakRollbackAnswer reports rolled back before the marker is committed.
	BreakRollbackAnswer = "rollback-answer"
	// BreakStoreID takes any store of a member's node for the member: its
	// acknowledgements, what is addressed to it, and its candidacy.
	BreakStoreID = "store-id"
	// BreakStoreAddressed takes messages that were meant for another store.
	BreakStoreAddressed = "store-addressed"
	// BreakStoreElect lets a node stand whose store is not the member's.
	BreakStoreElect = "store-elect"
	// BreakJoinBar lets a newcomer join that has not caught up.
	BreakJoinBar = "join-bar"
	// BreakIncarnation lets a restarted broker resume the epoch it led.
	BreakIncarnation = "incarnation"
	// BreakAckVerified acknowledges the whole durable log, not only what was
	// compared with this leader's.
	BreakAckVerified = "ack-verified"
	// BreakFollowerCommit takes the leader's committed end beyond what was
	// compared.
	BreakFollowerCommit = "follower-commit"
	// BreakRequestID does not recognise repeated puts.
	BreakRequestID = "request-id"
	// BreakMinISR proposes in-sync sets below the minimum.
	BreakMinISR = "min-isr"
	// BreakElectOutsideISR lets any replica stand for election.
	BreakElectOutsideISR = "elect-outside-isr"
	// BreakConfirmOrder applies channel-state deltas over a gap.
	BreakConfirmOrder = "confirm-order"
	// BreakAckEpoch counts acknowledgements of other epochs.
	BreakAckEpoch = "ack-epoch"
	// BreakAckIncarnation counts acknowledgements of an earlier process.
	BreakAckIncarnation = "ack-incarnation"
	// BreakOwnSync commits what the leader itself has not synced.
	BreakOwnSync = "own-sync"
	// BreakPromiseDurable acknowledges in an epoch whose promise is not durable.
	BreakPromiseDurable = "promise-durable"
	// BreakOpenDurable speaks in an epoch before its switch is durable here.
	BreakOpenDurable = "open-durable"
	// BreakVerifiedEpoch keeps what was compared with an earlier leader's log.
	BreakVerifiedEpoch = "verified-epoch"
	// BreakTruncateClamp lets old submissions vouch for bytes that were cut.
	BreakTruncateClamp = "truncate-clamp"
	// BreakProposedISR counts a newcomer only once its proposal was answered.
	BreakProposedISR = "proposed-isr"
	// BreakLateCAS takes a proposal without an answer for one that failed.
	BreakLateCAS = "late-cas"
	// BreakJoinEpochStart lets a newcomer join below the epoch start.
	BreakJoinEpochStart = "join-epoch-start"
	// BreakJoinConfirm lets a newcomer join without the channels' state.
	BreakJoinConfirm = "join-confirm"
	// BreakRollbackFreeze takes back to where the committed end was when the
	// rollback was proposed.
	BreakRollbackFreeze = "rollback-freeze"
	// BreakRollbackMarker takes back before the epoch's own marker is committed.
	BreakRollbackMarker = "rollback-marker"
	// BreakRollbackPositions keeps the followers' positions over a rollback.
	BreakRollbackPositions = "rollback-positions"
	// BreakStepDownDoubt calls what a deposed leader had written rolled back.
	BreakStepDownDoubt = "step-down-doubt"
	// BreakRegistration leads on without a registration.
	BreakRegistration = "registration"
	// BreakHandOverComplete hands over to an heir that lacks the newest puts.
	BreakHandOverComplete = "hand-over-complete"
	// BreakRequestTruncate recognises puts that were cut out of the log.
	BreakRequestTruncate = "request-truncate"
	// BreakRequestFollower remembers requests on the leader alone.
	BreakRequestFollower = "request-follower"
	// BreakRequestCommitted answers a repeat before its first try is committed.
	BreakRequestCommitted = "request-committed"
	// BreakConfirmOnAll confirms a change that only the leader holds.
	BreakConfirmOnAll = "confirm-on-all"
	// BreakVisible shows what is not committed: it is delivered.
	BreakVisible = "visible"
	// BreakRestartBelow begins the log afresh also below what is committed here.
	BreakRestartBelow = "restart-below"
	// BreakParting compares a follower with no epoch in common from the beginning.
	BreakParting = "parting"
	// BreakConfirmEpoch acknowledges another epoch's version of the channels.
	BreakConfirmEpoch = "confirm-epoch"
)

func (m *Machine) broken(rule string) bool { return m.o.Break == rule }
