// Written by tools/regenerate.py from protocol/schema; change what it follows from instead.

package main

import "encoding/json"

// A v1 generation request, as received.
type GenerateRequest struct {
	// Echoed on every frame of the answer.
	ID *string `json:"id,omitempty"`
	// 1 to 128 characters: the name or an alias of the backend that must answer. Default:
	// the first that can do what is asked.
	Model *string `json:"model,omitempty"`
	// 1 to 128 printable characters: who is asking. Only for users whom the daemon's
	// configuration names as gateways.
	Principal *string `json:"principal,omitempty"`
	// True: refuse the request if it has fields that are not known here. Default false:
	// they are ignored.
	Strict *bool `json:"strict,omitempty"`
	// 0 to 2,592,000: seconds without a request after which a model that is loaded on demand
	// may be unloaded, at most as many as configured; 0 for as many. Default: as configured.
	KeepAliveS *float64 `json:"keep_alive_s,omitempty"`
	// Tokens of one request, or of one text, that the model must at least take. Default 0:
	// any model will do.
	MinNCtx *int64 `json:"min_n_ctx,omitempty"`
	// True: if the request is refused with `model_not_found`, the frame has `described`.
	// Default false.
	Describe *bool `json:"describe,omitempty"`
	// Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
	// its own id refuses it. Default: none.
	Via []string `json:"via,omitempty"`
	// The conversation, oldest first.
	Messages []ChatMessage `json:"messages"`
	// 0 to 2; 0 always takes the most likely token. Default 1.0.
	Temperature *float64 `json:"temperature,omitempty"`
	// Above 0, up to 1: keep the most likely tokens of this total probability. Default
	// 0.95.
	TopP *float64 `json:"top_p,omitempty"`
	// Keep this many of the most likely tokens; 0 keeps all. Default 64.
	TopK *int64 `json:"top_k,omitempty"`
	// Longest answer in tokens. Default 1000.
	MaxTokens *int64 `json:"max_tokens,omitempty"`
	// False: send only the last frame, with the whole answer. Default true.
	Stream *bool `json:"stream,omitempty"`
	// 70, 140, 280, 560 or 1120; checked, but without effect on text.
	ImageTokenBudget *int64 `json:"image_token_budget,omitempty"`
	// GBNF grammar that the answer must follow; empty for none.
	Grammar *string `json:"grammar,omitempty"`
	// Up to 16 strings of 1 to 256 bytes that end the answer; they are left out of it.
	Stop []string `json:"stop,omitempty"`
	// Seed of the sampler, 0 to 4294967294; if omitted, a random one, reported in
	// `done`.
	Seed *int64 `json:"seed,omitempty"`
	// True: send `status` frames with the position in the queue and the progress of the
	// prompt.
	Progress *bool `json:"progress,omitempty"`
}

// One turn of a v1 conversation.
type ChatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// A v2 generation request, as received.
type BlocksRequest struct {
	// Echoed on every frame of the answer.
	ID *string `json:"id,omitempty"`
	// 1 to 128 characters: the name or an alias of the backend that must answer. Default:
	// the first that can do what is asked.
	Model *string `json:"model,omitempty"`
	// 1 to 128 printable characters: who is asking. Only for users whom the daemon's
	// configuration names as gateways.
	Principal *string `json:"principal,omitempty"`
	// True: refuse the request if it has fields that are not known here. Default false:
	// they are ignored.
	Strict *bool `json:"strict,omitempty"`
	// 0 to 2,592,000: seconds without a request after which a model that is loaded on demand
	// may be unloaded, at most as many as configured; 0 for as many. Default: as configured.
	KeepAliveS *float64 `json:"keep_alive_s,omitempty"`
	// Tokens of one request, or of one text, that the model must at least take. Default 0:
	// any model will do.
	MinNCtx *int64 `json:"min_n_ctx,omitempty"`
	// True: if the request is refused with `model_not_found`, the frame has `described`.
	// Default false.
	Describe *bool `json:"describe,omitempty"`
	// Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
	// its own id refuses it. Default: none.
	Via []string `json:"via,omitempty"`
	// 0 to 2; 0 always takes the most likely token. Default: the model's, else 1.0.
	Temperature *float64 `json:"temperature,omitempty"`
	// Above 0, up to 1: keep the most likely tokens of this total probability. Default:
	// the model's, else 0.95.
	TopP *float64 `json:"top_p,omitempty"`
	// Keep this many of the most likely tokens; 0 keeps all. Default: the model's, else
	// 64.
	TopK *int64 `json:"top_k,omitempty"`
	// 0 to 1: drop tokens less probable than this fraction of the most likely one. Default:
	// the model's, else 0.
	MinP *float64 `json:"min_p,omitempty"`
	// Above 0, up to 2: divides the score of recent tokens. Default 1.
	RepeatPenalty *float64 `json:"repeat_penalty,omitempty"`
	// -2 to 2: subtracted once from the score of each recent token. Default 0.
	PresencePenalty *float64 `json:"presence_penalty,omitempty"`
	// -2 to 2: subtracted from the score of a recent token per occurrence. Default 0.
	FrequencyPenalty *float64 `json:"frequency_penalty,omitempty"`
	// Maps token ids, in decimal, to a number added to their score: -100 to 100.
	LogitBias map[string]float64 `json:"logit_bias,omitempty"`
	// Seed of the sampler, 0 to 4294967294; if omitted, a random one, reported in
	// `done`.
	Seed *int64 `json:"seed,omitempty"`
	// Longest answer in tokens. Default 1000.
	MaxTokens *int64 `json:"max_tokens,omitempty"`
	// Tokens before which the model cannot end its turn. Default 0.
	MinTokens *int64 `json:"min_tokens,omitempty"`
	// Up to 16 strings of 1 to 256 bytes that end the answer; they are left out of it.
	Stop []string `json:"stop,omitempty"`
	// Up to 64 tokens that end the answer; they are left out of it.
	StopTokenIDs []int64 `json:"stop_token_ids,omitempty"`
	// 1 to 20: report the log probability of each token and of this many alternatives.
	Logprobs *int64 `json:"logprobs,omitempty"`
	// True: tell the ids of the tokens of the answer with its frames. Default false.
	TokenIDs *bool `json:"token_ids,omitempty"`
	// The structure that the text of the answer must have.
	ResponseFormat *ResponseFormat `json:"response_format,omitempty"`
	// `auto`, `required`, `none`, or the one tool to call. Default `auto`.
	ToolChoice json.RawMessage `json:"tool_choice,omitempty"`
	// True: ask for a reasoning trace.
	Thinking *bool `json:"thinking,omitempty"`
	// False: send each run of text or thinking as one whole frame. Default true.
	Stream *bool `json:"stream,omitempty"`
	// -10 to 10: orders a caller's own waiting requests, higher first. Default 0.
	Priority *int64 `json:"priority,omitempty"`
	// Milliseconds, at least 1, for waiting and running together.
	DeadlineMs *int64 `json:"deadline_ms,omitempty"`
	// `auto`, `off` or `discard`: use of cached prefixes. Default `auto`.
	Cache *string `json:"cache,omitempty"`
	// True: process the prompt and generate nothing.
	PrefillOnly *bool `json:"prefill_only,omitempty"`
	// Language of speech to transcribe: a code such as `de`, or `auto` to detect it.
	// Default `auto`.
	Language *string `json:"language,omitempty"`
	// True: transcribe speech into English, whatever its language. Default false.
	Translate *bool `json:"translate,omitempty"`
	// Of a transcription: whether a text block is a `segment` or a `word`. Default
	// `segment`.
	Timestamps *string `json:"timestamps,omitempty"`
	// True: transcribe speech, and tell the log probability of each token. Default false.
	SpeechLogprobs *bool `json:"speech_logprobs,omitempty"`
	// True: send `status` frames with the position in the queue and the progress of the
	// prompt.
	Progress *bool `json:"progress,omitempty"`
	// The conversation, oldest first; required unless `input_tokens` is given.
	Messages []Message `json:"messages,omitempty"`
	// In place of `messages`: 1 to 1,048,576 ids of the model's own tokens, the whole
	// prompt. Nothing is added to it.
	InputTokens []int64 `json:"input_tokens,omitempty"`
	// Media that blocks refer to; ids are unique.
	Attachments []json.RawMessage `json:"attachments,omitempty"`
	// Tools that the model may call; names are unique.
	Tools []Tool `json:"tools,omitempty"`
}

// The structure that the text of the answer must have.
type ResponseFormat struct {
	// `json_schema`, `regex`, `gbnf` or `lark`.
	Type string `json:"type"`
	// Any JSON value.
	Schema  json.RawMessage `json:"schema,omitempty"`
	Pattern *string         `json:"pattern,omitempty"`
	Grammar *string         `json:"grammar,omitempty"`
}

// A `tool_choice` that names one tool.
type NamedTool struct {
	Name string `json:"name"`
}

// One turn of a conversation.
type Message struct {
	Role    string            `json:"role"`
	Content []json.RawMessage `json:"content"`
}

// Text; may be empty.
type TextBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// An image of the attachments table.
type ImageBlock struct {
	Type         string `json:"type"`
	AttachmentID string `json:"attachment_id"`
}

// A recording of the attachments table.
type AudioBlock struct {
	Type         string `json:"type"`
	AttachmentID string `json:"attachment_id"`
}

// A video of the attachments table.
type VideoBlock struct {
	Type         string `json:"type"`
	AttachmentID string `json:"attachment_id"`
}

// A call that the assistant made in an earlier turn.
type ToolUseBlock struct {
	Type       string `json:"type"`
	ToolCallID string `json:"tool_call_id"`
	Name       string `json:"name"`
	// Any JSON value.
	Input json.RawMessage `json:"input"`
}

// The result of a tool call; may be empty.
type ToolResultBlock struct {
	Type       string            `json:"type"`
	ToolCallID string            `json:"tool_call_id"`
	Content    []json.RawMessage `json:"content"`
}

// An image, decoded by the client to RGB pixels.
type ImageAttachment struct {
	Kind   string `json:"kind"`
	ID     string `json:"id"`
	Width  int64  `json:"width"`
	Height int64  `json:"height"`
	// Base64 of `width * height * 3` RGB octets.
	Bytes *string `json:"bytes,omitempty"`
	// Instead of `bytes`: index, from 0, of a file descriptor sent with the line; a sealed
	// memfd with the octets.
	Fd *int64 `json:"fd,omitempty"`
}

// A recording, decoded by the client to samples.
type AudioAttachment struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// Samples per second.
	SampleRate int64 `json:"sample_rate"`
	// Base64 of little-endian 32-bit floats, one channel.
	Bytes *string `json:"bytes,omitempty"`
	// Instead of `bytes`: index, from 0, of a file descriptor sent with the line; a sealed
	// memfd with the floats.
	Fd *int64 `json:"fd,omitempty"`
	// True: more samples follow in `append` lines; `bytes` and `fd` may be omitted.
	Open *bool `json:"open,omitempty"`
}

// Reserved.
type VideoAttachment struct {
	Kind  string `json:"kind"`
	ID    string `json:"id"`
	Bytes string `json:"bytes"`
}

// A function that the model may call.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Any JSON value.
	InputSchema json.RawMessage `json:"input_schema"`
}

// Texts to turn into vectors: exactly one of `input` and `tokens`.
type EmbedRequest struct {
	// Echoed on the answer.
	ID *string `json:"id,omitempty"`
	// 1 to 128 characters: the name or an alias of the backend that must answer. Default:
	// the first that can do what is asked.
	Model *string `json:"model,omitempty"`
	// 1 to 128 printable characters: who is asking. Only for users whom the daemon's
	// configuration names as gateways.
	Principal *string `json:"principal,omitempty"`
	// True: refuse the request if it has fields that are not known here. Default false:
	// they are ignored.
	Strict *bool `json:"strict,omitempty"`
	// 0 to 2,592,000: seconds without a request after which a model that is loaded on demand
	// may be unloaded, at most as many as configured; 0 for as many. Default: as configured.
	KeepAliveS *float64 `json:"keep_alive_s,omitempty"`
	// Tokens of one request, or of one text, that the model must at least take. Default 0:
	// any model will do.
	MinNCtx *int64 `json:"min_n_ctx,omitempty"`
	// True: if the request is refused with `model_not_found`, the frame has `described`.
	// Default false.
	Describe *bool `json:"describe,omitempty"`
	// Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
	// its own id refuses it. Default: none.
	Via []string `json:"via,omitempty"`
	// 1 to 2048 texts, none empty.
	Input []string `json:"input,omitempty"`
	// 1 to 2048 texts as ids of the model's own tokens, none empty. The special tokens that
	// the model puts around a text are not added.
	Tokens [][]int64 `json:"tokens,omitempty"`
	// How many numbers of each vector to keep, from its beginning; default all.
	Dimensions *int64 `json:"dimensions,omitempty"`
	// Purpose of the vectors, for models that distinguish tasks: `retrieval_query`,
	// `retrieval_document`, `similarity`, `classification`, `clustering`,
	// `question_answering`, `fact_verification` or `code_retrieval_query`.
	Task *string `json:"task,omitempty"`
}

// Documents to order by how well they answer a query.
type RerankRequest struct {
	// Echoed on the answer.
	ID *string `json:"id,omitempty"`
	// 1 to 128 characters: the name or an alias of the backend that must answer. Default:
	// the first that can do what is asked.
	Model *string `json:"model,omitempty"`
	// 1 to 128 printable characters: who is asking. Only for users whom the daemon's
	// configuration names as gateways.
	Principal *string `json:"principal,omitempty"`
	// True: refuse the request if it has fields that are not known here. Default false:
	// they are ignored.
	Strict *bool `json:"strict,omitempty"`
	// 0 to 2,592,000: seconds without a request after which a model that is loaded on demand
	// may be unloaded, at most as many as configured; 0 for as many. Default: as configured.
	KeepAliveS *float64 `json:"keep_alive_s,omitempty"`
	// Tokens of one request, or of one text, that the model must at least take. Default 0:
	// any model will do.
	MinNCtx *int64 `json:"min_n_ctx,omitempty"`
	// True: if the request is refused with `model_not_found`, the frame has `described`.
	// Default false.
	Describe *bool `json:"describe,omitempty"`
	// Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
	// its own id refuses it. Default: none.
	Via []string `json:"via,omitempty"`
	// The search text; not empty.
	Query string `json:"query"`
	// 1 to 256 texts, none empty; with the query at most 8 MiB.
	Documents []string `json:"documents"`
	// Return only this many of the best documents; at least 1, default all.
	TopN *int64 `json:"top_n,omitempty"`
}

// A question which models the socket serves; it is answered at once, without the queue.
type DescribeRequest struct {
	Type string `json:"type"`
	// Echoed on the answer.
	ID *string `json:"id,omitempty"`
	// 1 to 128 characters: the name or an alias of the backend that must answer. Default:
	// the first that can do what is asked.
	Model *string `json:"model,omitempty"`
	// 1 to 128 printable characters: who is asking. Only for users whom the daemon's
	// configuration names as gateways.
	Principal *string `json:"principal,omitempty"`
	// True: refuse the request if it has fields that are not known here. Default false:
	// they are ignored.
	Strict *bool `json:"strict,omitempty"`
	// 0 to 2,592,000: seconds without a request after which a model that is loaded on demand
	// may be unloaded, at most as many as configured; 0 for as many. Default: as configured.
	KeepAliveS *float64 `json:"keep_alive_s,omitempty"`
	// Tokens of one request, or of one text, that the model must at least take. Default 0:
	// any model will do.
	MinNCtx *int64 `json:"min_n_ctx,omitempty"`
	// True: if the request is refused with `model_not_found`, the frame has `described`.
	// Default false.
	Describe *bool `json:"describe,omitempty"`
	// Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
	// its own id refuses it. Default: none.
	Via []string `json:"via,omitempty"`
}

// Cancels the requests with this id that run or wait on the same connection.
type CancelLine struct {
	Type *string `json:"type,omitempty"`
	ID   string  `json:"id"`
	// That of the requests, if they have one: those of others with this id go on.
	Principal *string `json:"principal,omitempty"`
}

// More audio for a request that waits or runs.
type AppendLine struct {
	Type string `json:"type"`
	// The request's id.
	ID string `json:"id"`
	// The request's, if it has one.
	Principal *string `json:"principal,omitempty"`
	// Id of an attachment that is `open`.
	AttachmentID string `json:"attachment_id"`
	// Base64 of little-endian 32-bit floats, one channel.
	Bytes *string `json:"bytes,omitempty"`
	// Instead of `bytes`: as in an attachment.
	Fd *int64 `json:"fd,omitempty"`
	// True: no more audio follows.
	End *bool `json:"end,omitempty"`
}

// A command from an admin client.
type Command struct {
	// `requests`, `explain`, `top`, `metrics`, `backends`, `log`, `cancel`, `load`,
	// `unload`, `drain` or `reload`.
	Command string `json:"command"`
	// With `cancel`: the id of the request to cancel; with `explain`: of those that are
	// meant.
	ID *string `json:"id,omitempty"`
	// With `explain`: the daemon's own number of the request that is meant.
	Number *int64 `json:"number,omitempty"`
	// With `cancel`: for whom the request asks; needed where it asks for a principal.
	Principal *string `json:"principal,omitempty"`
	// With `load` and `unload`: name of the backend whose model is meant.
	Backend *string `json:"backend,omitempty"`
}

// A part of the answer.
type TokenFrame struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Content string `json:"content"`
}

// The end of an answer; `content` is the whole answer, streamed or not.
type DoneFrame struct {
	Type       string `json:"type"`
	ID         string `json:"id"`
	Content    string `json:"content"`
	Usage      Usage  `json:"usage"`
	StopReason string `json:"stop_reason"`
	// Its configured name; empty if the request was cancelled before one was chosen.
	Backend string `json:"backend"`
	// The sampler's.
	Seed   *int64  `json:"seed,omitempty"`
	Timing *Timing `json:"timing,omitempty"`
	// With a structure or a call that was asked for: whether it is closed.
	StructureComplete *bool `json:"structure_complete,omitempty"`
	// Where nothing of the prompt was in the cache: why.
	CacheMiss *string `json:"cache_miss,omitempty"`
}

// Token counts of a v1 generation.
type Usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	// Tokens of the prompt that were in the cache.
	CachedTokens *int64 `json:"cached_tokens,omitempty"`
	// Tokens drafted by speculative decoding, if any were.
	DraftedTokens *int64 `json:"drafted_tokens,omitempty"`
	// Drafted tokens that the model accepted.
	AcceptedTokens *int64 `json:"accepted_tokens,omitempty"`
	// Present if a remote engine counted nothing, and the numbers are estimated.
	IsEstimate *bool `json:"is_estimate,omitempty"`
}

// Times of a request; the `_ns` fields exceed the 53 bits of a double.
type Timing struct {
	// From arrival to the start of the run.
	QueuedMs float64 `json:"queued_ms"`
	// From the start to the first token.
	PrefillMs float64 `json:"prefill_ms"`
	// From arrival to the first token.
	FirstTokenMs float64 `json:"first_token_ms"`
	// From the first token to the end.
	DecodeMs float64 `json:"decode_ms"`
	// From arrival to the end.
	TotalMs float64 `json:"total_ms"`
	// Tokens after the first ones divided by `decode_ms`; 0 if there are none. Those that
	// came at once with the first, as a grammar may give no choice of them, are first ones.
	TokensPerSecond float64 `json:"tokens_per_second"`
	ArrivedNs       int64   `json:"arrived_ns"`
	StartedNs       int64   `json:"started_ns"`
	FinishedNs      int64   `json:"finished_ns"`
	// Milliseconds for which it was paused for other users, if it was; the other times
	// include them.
	PausedMs *float64 `json:"paused_ms,omitempty"`
}

// A part of the answer, of one type.
type BlockFrame struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Block json.RawMessage `json:"block"`
	// With text, if requested: the tokens of the text.
	Logprobs []Logprob `json:"logprobs,omitempty"`
	// If requested: the ids of the tokens of this part, of those that begin in it, and of the
	// markers before it.
	TokenIDs []int64 `json:"token_ids,omitempty"`
}

// A part of the visible answer.
type TextDelta struct {
	Type  string `json:"type"`
	Delta string `json:"delta"`
	// In a transcription: start of the text, from the beginning of the audio.
	StartMs *int64 `json:"start_ms,omitempty"`
	EndMs   *int64 `json:"end_ms,omitempty"`
	// In a transcription: probability that nobody speaks there, 0 to 1.
	NoSpeech *float64 `json:"no_speech,omitempty"`
}

// A part of the reasoning trace.
type ThinkingDelta struct {
	Type  string `json:"type"`
	Delta string `json:"delta"`
}

// A complete tool call.
type ToolCall struct {
	Type       string `json:"type"`
	ToolCallID string `json:"tool_call_id"`
	Name       string `json:"name"`
	// Any JSON value.
	Input json.RawMessage `json:"input"`
}

// The chosen token and the most likely alternatives.
type Logprob struct {
	// The token's text; parts of characters split over tokens are U+FFFD.
	Token string `json:"token"`
	ID    int64  `json:"id"`
	// The bytes of the token's text.
	Bytes []int64 `json:"bytes"`
	// Natural logarithm of its probability, before any sampling option.
	Logprob     float64       `json:"logprob"`
	TopLogprobs []Alternative `json:"top_logprobs"`
}

// A token and its log probability.
type Alternative struct {
	// The token's text; parts of characters split over tokens are U+FFFD.
	Token string `json:"token"`
	ID    int64  `json:"id"`
	// The bytes of the token's text.
	Bytes []int64 `json:"bytes"`
	// Natural logarithm of its probability, before any sampling option.
	Logprob float64 `json:"logprob"`
}

// The end of a v2 answer.
type BlocksDone struct {
	Type       string  `json:"type"`
	ID         string  `json:"id"`
	Usage      UsageV2 `json:"usage"`
	StopReason string  `json:"stop_reason"`
	// Its configured name; empty if the request was cancelled before one was chosen.
	Backend string `json:"backend"`
	// The sampler's.
	Seed   *int64  `json:"seed,omitempty"`
	Timing *Timing `json:"timing,omitempty"`
	// The string of `stop` that was found.
	StopSequence *string `json:"stop_sequence,omitempty"`
	// The token of `stop_token_ids` that was chosen.
	StopTokenID *int64 `json:"stop_token_id,omitempty"`
	// If requested: the ids of the answer's tokens that no frame had: of text that was
	// withheld, and of markers.
	TokenIDs []int64 `json:"token_ids,omitempty"`
	// If ids are requested: the token that ended the answer, if one did. It is no part of
	// the answer, and not counted in `usage`.
	EndTokenID *int64 `json:"end_token_id,omitempty"`
	// With `cancelled`: the reason.
	Detail *string `json:"detail,omitempty"`
	// With a structure or a call that was asked for: whether it is closed.
	StructureComplete *bool `json:"structure_complete,omitempty"`
	// Where nothing of the prompt was in the cache: why.
	CacheMiss *string         `json:"cache_miss,omitempty"`
	Warnings  []AnswerWarning `json:"warnings,omitempty"`
	// With a transcription: facts about it.
	Transcription *TranscriptionFacts `json:"transcription,omitempty"`
}

// Token counts of a v2 generation.
type UsageV2 struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// Tokens of the input that were in the cache.
	CachedTokens *int64 `json:"cached_tokens,omitempty"`
	// Tokens drafted by speculative decoding, if any were.
	DraftedTokens *int64 `json:"drafted_tokens,omitempty"`
	// Drafted tokens that the model accepted.
	AcceptedTokens *int64 `json:"accepted_tokens,omitempty"`
	// Present if a remote engine counted nothing, and the numbers are estimated.
	IsEstimate *bool `json:"is_estimate,omitempty"`
}

// A warning about the answer.
type AnswerWarning struct {
	Code string `json:"code"`
	// The text of the call. It was sent as text, unless `max_tokens` cut a forced call.
	Raw string `json:"raw"`
}

// Facts about a transcription: its language, length and speed.
type TranscriptionFacts struct {
	// Code of the language.
	Language string `json:"language"`
	// With `auto`: probability of the detected language, 0 to 1.
	LanguageProbability *float64 `json:"language_probability,omitempty"`
	// Milliseconds of audio transcribed.
	AudioMs int64 `json:"audio_ms"`
	// Computing time divided by the length of the audio.
	RealTimeFactor float64 `json:"real_time_factor"`
	// With an open attachment: milliseconds from receiving its end to the end of the
	// answer.
	LatencyMs *float64 `json:"latency_ms,omitempty"`
}

// One vector per input, in order.
type EmbeddingsFrame struct {
	Type       string      `json:"type"`
	ID         string      `json:"id"`
	Embeddings [][]float64 `json:"embeddings"`
	// Length of every vector.
	Dimensions int64       `json:"dimensions"`
	Model      string      `json:"model"`
	Usage      EncodeUsage `json:"usage"`
	Backend    string      `json:"backend"`
}

// Token count of embeddings or scores.
type EncodeUsage struct {
	InputTokens int64 `json:"input_tokens"`
	// Present if a remote engine counted nothing, and the number is estimated.
	IsEstimate *bool `json:"is_estimate,omitempty"`
}

// Documents by score, best first.
type RerankFrame struct {
	Type    string           `json:"type"`
	ID      string           `json:"id"`
	Results []RankedDocument `json:"results"`
	Model   string           `json:"model"`
	Usage   EncodeUsage      `json:"usage"`
	Backend string           `json:"backend"`
}

// A document's index in the request, and its score.
type RankedDocument struct {
	Index int64   `json:"index"`
	Score float64 `json:"score"`
}

// The answer to `describe`: the models that requests on this socket may ask for.
type ModelsFrame struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	// In configured order, then those of the store that no request has named yet.
	Models []OfferedFacts `json:"models"`
	// How many further models were left out, if any.
	Omitted *int64 `json:"omitted,omitempty"`
}

// A backend, or a model of the store, as the `capabilities` frames have it.
type OfferedFacts struct {
	// Its name.
	Backend string `json:"backend"`
	// Further names for `model`.
	Aliases []string `json:"aliases"`
	// `ready`; `loading`; `unloaded` or `unloading`, where a request loads it; or
	// `failed`.
	State string `json:"state"`
	// Present for a model of the store whose header has not been read: what it can do is not
	// known before a request names it, and the fields below say nothing of it.
	IsUnread  *bool `json:"is_unread,omitempty"`
	Generate  *bool `json:"generate,omitempty"`
	Embed     *bool `json:"embed,omitempty"`
	Rerank    *bool `json:"rerank,omitempty"`
	Tools     *bool `json:"tools,omitempty"`
	Thinking  *bool `json:"thinking,omitempty"`
	Vision    *bool `json:"vision,omitempty"`
	Audio     *bool `json:"audio,omitempty"`
	Structure *bool `json:"structure,omitempty"`
	// Present if it transcribes speech.
	Transcribe *bool `json:"transcribe,omitempty"`
	// Tokens one request may take, prompt and answer together; those of a text.
	NCtx *int64 `json:"n_ctx,omitempty"`
	// Length of its vectors.
	NEmbd *int64 `json:"n_embd,omitempty"`
	// The model's own name.
	Model *string `json:"model,omitempty"`
	// The model family whose prompt and call format it uses.
	Dialect *string `json:"dialect,omitempty"`
}

// Progress of a request that asked for it, or whose audio is still sent.
type ProgressFrame struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Status string `json:"status"`
	// With `queued`: 1 for the next to run.
	Position *int64 `json:"position,omitempty"`
	// With `loading`: the step of loading the model.
	Phase *string `json:"phase,omitempty"`
	// With `loading`: name of the backend whose model is loaded.
	Backend *string `json:"backend,omitempty"`
	// With `prefill`: tokens of the prompt processed so far.
	Processed *int64 `json:"processed,omitempty"`
	// With `prefill`: tokens of the prompt.
	Total *int64 `json:"total,omitempty"`
	// With `partial`: transcribed text that may still change.
	Text *string `json:"text,omitempty"`
	// With `partial`: start of the text, from the beginning of the audio.
	StartMs *int64 `json:"start_ms,omitempty"`
	EndMs   *int64 `json:"end_ms,omitempty"`
}

// The end of a request that failed.
type ErrorFrame struct {
	Type    string    `json:"type"`
	ID      string    `json:"id"`
	Code    ErrorCode `json:"code"`
	Message string    `json:"message"`
	// With a context overflow: tokens of the prompt.
	PromptTokens *int64 `json:"prompt_tokens,omitempty"`
	// With a context overflow: tokens one request may take.
	NCtx *int64 `json:"n_ctx,omitempty"`
	// With a context overflow: tokens to remove.
	TokensOver *int64 `json:"tokens_over,omitempty"`
	// With a context overflow: true if the prompt was not counted to its end.
	AtLeast *bool `json:"at_least,omitempty"`
	// With `queue_full`, unless connections or descriptors are too many: requests that
	// wait.
	QueueDepth *int64 `json:"queue_depth,omitempty"`
	// With `queue_full` of the request queue, if it can be estimated: milliseconds until a
	// request may be accepted.
	RetryAfterMs *int64 `json:"retry_after_ms,omitempty"`
	// With `model_not_found`: names of models that can do what is asked, 32 at most.
	Models []string `json:"models,omitempty"`
	// With `model_not_found`, where the request asks for it: facts about these models, of
	// which each is one entry whatever names it has.
	Described []OfferedFacts `json:"described,omitempty"`
}

// The `code` of an error frame.
type ErrorCode string

// The lifecycle state of the daemon.
type LifecycleFrame struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status"`
	// The step on the way to `ready`.
	Phase *string `json:"phase,omitempty"`
	// Configured name of the backend concerned.
	Backend *string `json:"backend,omitempty"`
	// The model file, or a word in brackets if there is no file.
	Path *string `json:"path,omitempty"`
	// With `kv_cache`: tokens of one request's context.
	NCtx *int64 `json:"n_ctx,omitempty"`
	// With `restarting`: why the worker exited.
	Reason *string `json:"reason,omitempty"`
	// With `backoff` and `breaker_open`: seconds until the next start.
	RetryInS *float64 `json:"retry_in_s,omitempty"`
}

// The capabilities of one backend; sent before `ready` and again on connect.
type CapabilitiesFrame struct {
	ID          string `json:"id"`
	Type        string `json:"type"`
	Status      string `json:"status"`
	Backend     string `json:"backend"`
	V2          bool   `json:"v2"`
	Vision      bool   `json:"vision"`
	Audio       bool   `json:"audio"`
	Tools       bool   `json:"tools"`
	Thinking    bool   `json:"thinking"`
	Embed       bool   `json:"embed"`
	Generate    bool   `json:"generate"`
	Rerank      bool   `json:"rerank"`
	Accelerator string `json:"accelerator"`
	GpuLayers   int64  `json:"gpu_layers"`
	// Names of the accelerators.
	DeviceName *string `json:"device_name,omitempty"`
	// Bytes of memory of the accelerators.
	VramTotalBytes *int64 `json:"vram_total_bytes,omitempty"`
	// Bytes of it that were free when the model had been loaded.
	VramFreeBytes *int64 `json:"vram_free_bytes,omitempty"`
	// The variant of the library's CPU code in use.
	CpuVariant *string `json:"cpu_variant,omitempty"`
	// Version of the protocol: 1 for this family of NDJSON sockets.
	WireVersion int64 `json:"wire_version"`
	// Tokens one request may take, prompt and answer together.
	NCtx *int64 `json:"n_ctx,omitempty"`
	// Requests that can run at once.
	NSlots *int64 `json:"n_slots,omitempty"`
	// Data type of the keys in the KV cache.
	CacheTypeK *string `json:"cache_type_k,omitempty"`
	// Data type of the values in the KV cache.
	CacheTypeV *string `json:"cache_type_v,omitempty"`
	// The model's own name.
	Model *string `json:"model,omitempty"`
	// With `model = "auto"`: which model of the ladder was chosen at the start, and why.
	ModelChoice *string `json:"model_choice,omitempty"`
	// Present if another engine answers, perhaps on another machine.
	Remote *bool `json:"remote,omitempty"`
	// Present if it gets only requests that name it.
	ByNameOnly *bool `json:"by_name_only,omitempty"`
	// Whether it can constrain an answer to a grammar, a schema or a tool call.
	Structure bool `json:"structure"`
	// Present if it transcribes speech.
	Transcribe *bool `json:"transcribe,omitempty"`
	// Samples per second that audio must have.
	AudioSampleRate *int64 `json:"audio_sample_rate,omitempty"`
	// The model family whose prompt and call format it uses.
	Dialect *string `json:"dialect,omitempty"`
	// Further names of the backend, for the `model` of requests.
	Aliases []string `json:"aliases,omitempty"`
	// `ready`; `loading`, where requests wait for it; `unloaded` or `unloading`, where
	// a request loads it; or `failed`, where they are refused for a while. On connect it is the
	// present state.
	State *string `json:"state,omitempty"`
	// Present if its requests or tokens are bounded: what is left. On connect it is the present
	// state.
	Budget *BudgetLeft `json:"budget,omitempty"`
	// Present for a model of the store whose header has not been read: what it can do is not
	// known before a request names it, and the fields above say nothing of it.
	IsUnread *bool `json:"is_unread,omitempty"`
	// Version of the daemon.
	DaemonVersion string `json:"daemon_version"`
}

// What is left of a backend's budget.
type BudgetLeft struct {
	// Requests that may still begin in this minute, if they are bounded.
	RequestsLeft *int64 `json:"requests_left,omitempty"`
	// Tokens that may still be used today, in UTC, if they are bounded.
	TokensLeft *int64 `json:"tokens_left,omitempty"`
}

// The answer to one command; `ok` says whether it was carried out.
type Reply struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// The command, as received; empty if the line could not be decoded.
	Command string `json:"command"`
	Ok      bool   `json:"ok"`
	// With `ok` false: the reason.
	Error *string `json:"error,omitempty"`
	// With `ok` false, of `load` and `unload`: the kind of the reason, as the codes of
	// error frames have it.
	Code     *ErrorCode    `json:"code,omitempty"`
	Requests []RequestInfo `json:"requests,omitempty"`
	// With `explain`: those that wait and run, then those that have ended, the newest
	// first.
	Explained []ExplainedRequest `json:"explained,omitempty"`
	// With `explain`: when the oldest of the ended ones that are kept was received, in
	// nanoseconds since 1970.
	SinceNs *int64 `json:"since_ns,omitempty"`
	// With `top`: the daemon as a whole.
	Overview *Overview `json:"overview,omitempty"`
	// With `requests` and `explain`: number of requests that did not fit the list.
	Omitted  *int64        `json:"omitted,omitempty"`
	Backends []BackendInfo `json:"backends,omitempty"`
	// With `metrics`: the metrics in Prometheus' text format.
	Text *string `json:"text,omitempty"`
	// With `log`: the newest lines of the log, each an object of JSON, the oldest first.
	Lines []string `json:"lines,omitempty"`
	// With `cancel`: number of requests that were cancelled.
	Cancelled *int64 `json:"cancelled,omitempty"`
	// With `reload`: changed settings that are now in force.
	Applied []string `json:"applied,omitempty"`
	// With `reload`: changed settings that need a restart.
	NeedsRestart []string `json:"needs_restart,omitempty"`
}

// A waiting or running request.
type RequestInfo struct {
	// The request's id; a long one is cut off and ends with an ellipsis.
	ID string `json:"id"`
	// File name of the socket that received it.
	Socket string `json:"socket"`
	// The caller's user; -1 if the kernel did not report it.
	Uid int64 `json:"uid"`
	Pid int64 `json:"pid"`
	// For whom a gateway's request asks.
	Principal *string `json:"principal,omitempty"`
	Phase     string  `json:"phase"`
	// Milliseconds since it arrived.
	AgeMs   float64 `json:"age_ms"`
	Backend *string `json:"backend,omitempty"`
	// With `queued`: 1 for the next to run; unknown while an earlier request of the same
	// connection waits.
	Position *int64 `json:"position,omitempty"`
	// Tokens generated so far.
	OutputTokens int64 `json:"output_tokens"`
}

// The life of a request that waits, runs or has ended.
// 
// What has not happened is missing. Times are of the daemon: they end when an answer is
// handed to the kernel.
type ExplainedRequest struct {
	// The daemon's own number of the request; counts from 1 at its start.
	Number int64 `json:"number"`
	// The request's id; a long one is cut off and ends with an ellipsis.
	ID string `json:"id"`
	// The caller's user; -1 if the kernel did not report it.
	Uid int64 `json:"uid"`
	Pid int64 `json:"pid"`
	// For whom a gateway's request asks.
	Principal *string `json:"principal,omitempty"`
	// File name of the socket that received it.
	Socket string `json:"socket"`
	// The name that the request asked for.
	Model   *string `json:"model,omitempty"`
	Backend *string `json:"backend,omitempty"`
	Phase   string  `json:"phase"`
	// When its line was read, in nanoseconds since 1970.
	ReceivedNs int64 `json:"received_ns"`
	// Length of its line.
	LineBytes int64 `json:"line_bytes"`
	// With `ended`: the stop reason, an error code or `abandoned`.
	Outcome *string `json:"outcome,omitempty"`
	// Milliseconds since it was received; of one that has ended, until then.
	TotalMs float64 `json:"total_ms"`
	// Milliseconds until it had a place in the queue: behind others of its connection, and
	// until its line was decoded.
	ReadingMs *float64 `json:"reading_ms,omitempty"`
	// Milliseconds for which it waited until its model was loaded.
	LoadingMs *float64 `json:"loading_ms,omitempty"`
	// Milliseconds until its prompt was rendered and counted, with the wait for others'.
	PreparingMs *float64 `json:"preparing_ms,omitempty"`
	// Tokens of the prompt, or of all texts.
	InputTokens *int64 `json:"input_tokens,omitempty"`
	// Only as `true`: these tokens are estimated.
	IsEstimate *bool `json:"is_estimate,omitempty"`
	// How many of these were in the prompt cache.
	CachedTokens *int64 `json:"cached_tokens,omitempty"`
	// Why none was.
	CacheMiss *string `json:"cache_miss,omitempty"`
	// Milliseconds until it ran, from when it was prepared.
	WaitingMs *float64 `json:"waiting_ms,omitempty"`
	// Requests that waited already, if it could not run at once.
	NWaiting *int64 `json:"n_waiting,omitempty"`
	// Whose requests ran then, or when it was paused; for operators alone.
	WaitedFor []PermitHolder `json:"waited_for,omitempty"`
	// Its positions in the queue, one after the other; where they were computed.
	Positions []int64 `json:"positions,omitempty"`
	// Times that others had its place.
	Pauses   *int64   `json:"pauses,omitempty"`
	PausedMs *float64 `json:"paused_ms,omitempty"`
	// Milliseconds from when it ran until it gave its place back, with pauses.
	RunMs *float64 `json:"run_ms,omitempty"`
	// Milliseconds from when it ran to its first token.
	PrefillMs *float64 `json:"prefill_ms,omitempty"`
	// Milliseconds from when it was received to its first token.
	FirstTokenMs *float64 `json:"first_token_ms,omitempty"`
	// Milliseconds from its first token until it gave its place back, with pauses.
	DecodeMs     *float64 `json:"decode_ms,omitempty"`
	OutputTokens *int64   `json:"output_tokens,omitempty"`
	// Of the tokens after the first one, and those that came at once with it.
	TokensPerSecond *float64 `json:"tokens_per_second,omitempty"`
	// Milliseconds of audio that it has.
	AudioMs *float64 `json:"audio_ms,omitempty"`
	// Times that the client did not read, and its answer waited for that.
	Stalls    *int64   `json:"stalls,omitempty"`
	StalledMs *float64 `json:"stalled_ms,omitempty"`
}

// A user whose requests ran while another request waited.
type PermitHolder struct {
	// The user that limits count; -1 for users whom the kernel did not report.
	Uid int64 `json:"uid"`
	// For whom a gateway's requests ask.
	Principal *string `json:"principal,omitempty"`
	// Its requests that ran.
	Requests int64 `json:"requests"`
}

// The state of the daemon, and what it did lately: in the last `window_s` seconds.
type Overview struct {
	Version string `json:"version"`
	// As in status frames: `ready`, `restarting`, `draining` and so on.
	Status string `json:"status"`
	// Nanoseconds since 1970.
	AtNs    int64   `json:"at_ns"`
	UptimeS float64 `json:"uptime_s"`
	Pid     int64   `json:"pid"`
	// Memory of the daemon's own process.
	ResidentBytes *int64 `json:"resident_bytes,omitempty"`
	// Requests that hold a permit.
	Running int64 `json:"running"`
	// Permits.
	Places  int64 `json:"places"`
	Waiting int64 `json:"waiting"`
	Paused  int64 `json:"paused"`
	// Prompt tokens of those that wait, as far as they are counted.
	WaitingTokens int64 `json:"waiting_tokens"`
	Connections   int64 `json:"connections"`
	// At most 60; less if the daemon keeps no older request.
	WindowS float64 `json:"window_s"`
	Ended   int64   `json:"ended"`
	// How many of these ended with an error.
	Failed      int64 `json:"failed"`
	InputTokens int64 `json:"input_tokens"`
	// How many of the input tokens were in the prompt cache.
	CachedTokens int64 `json:"cached_tokens"`
	// Tokens of answers, of requests that run or have ended.
	TokensPerSecond float64 `json:"tokens_per_second"`
	// From when they were received to the first token.
	FirstTokenMs *Percentiles `json:"first_token_ms,omitempty"`
	// From when they were received until they ran.
	WaitingMs *Percentiles `json:"waiting_ms,omitempty"`
	// From when they were received to the end, for those that did not fail.
	TotalMs           *Percentiles `json:"total_ms,omitempty"`
	MemoryBudgetBytes int64        `json:"memory_budget_bytes"`
	MemoryNeededBytes int64        `json:"memory_needed_bytes"`
	// What the machine and the daemon's control groups still have.
	MemoryAvailableBytes int64 `json:"memory_available_bytes"`
	// Those with the largest shares first.
	Users         []UserLoad  `json:"users"`
	OmittedUsers  *int64      `json:"omitted_users,omitempty"`
	Models        []ModelLoad `json:"models"`
	OmittedModels *int64      `json:"omitted_models,omitempty"`
}

// Times of requests that ended lately, in milliseconds; each is one that occurred.
type Percentiles struct {
	// Requests that have such a time.
	N   int64   `json:"n"`
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// What one user's requests take.
type UserLoad struct {
	// The user that limits count; -1 for users whom the kernel did not report.
	Uid int64 `json:"uid"`
	// For whom a gateway's requests ask.
	Principal *string `json:"principal,omitempty"`
	// Requests that have begun, paused ones among them.
	Running int64 `json:"running"`
	Waiting int64 `json:"waiting"`
	// Of the time that all requests have run lately; from 0 to 1.
	Share float64 `json:"share"`
	// Requests that ended lately.
	Ended int64 `json:"ended"`
	// Tokens of answers lately.
	TokensPerSecond float64 `json:"tokens_per_second"`
}

// What one backend does, and what it takes.
type ModelLoad struct {
	Name string `json:"name"`
	// `unloaded`, `loading`, `ready`, `unloading` or `failed`.
	State string `json:"state"`
	// The process id of its worker, if it has one.
	Pid *int64 `json:"pid,omitempty"`
	// Memory of that process in the machine's memory, with pages of the model's file.
	ResidentBytes *int64 `json:"resident_bytes,omitempty"`
	// Host memory of saved prompts; unknown until the prompt cache was used.
	CacheBytes *int64 `json:"cache_bytes,omitempty"`
	// Requests that can run at once.
	Slots   *int64 `json:"slots,omitempty"`
	Running int64  `json:"running"`
	Waiting int64  `json:"waiting"`
	// Tokens of one request, or of one text.
	NCtx *int64 `json:"n_ctx,omitempty"`
	// Only as `true`: another engine answers, perhaps on another machine.
	Remote *bool `json:"remote,omitempty"`
	// Tokens of answers lately.
	TokensPerSecond float64 `json:"tokens_per_second"`
}

// A configured backend.
type BackendInfo struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Further names for requests.
	Aliases []string `json:"aliases,omitempty"`
	// `unloaded`, `loading`, `ready`, `unloading` or `failed`.
	State *string `json:"state,omitempty"`
	// Reason why it will not be ready soon.
	Unavailable *string `json:"unavailable,omitempty"`
	// What is left of its budget, if it has one.
	Budget       *BudgetLeft     `json:"budget,omitempty"`
	Capabilities json.RawMessage `json:"capabilities"`
}
