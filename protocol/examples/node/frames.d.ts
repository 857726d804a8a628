// Written by tools/regenerate.py from protocol/schema; change what it follows from instead.

// A v1 generation request, as received.
export interface GenerateRequest {
  // Echoed on every frame of the answer.
  id?: string;
  // 1 to 128 characters: the name or an alias of the backend that must answer. Default:
  // the first that can do what is asked.
  model?: string | null;
  // 1 to 128 printable characters: who is asking. Only for users whom the daemon's
  // configuration names as gateways.
  principal?: string | null;
  // True: refuse the request if it has fields that are not known here. Default false:
  // they are ignored.
  strict?: boolean | null;
  // 0 to 2,592,000: seconds without a request after which a model that is loaded on demand
  // may be unloaded, at most as many as configured; 0 for as many. Default: as configured.
  keep_alive_s?: number | null;
  // Tokens of one request, or of one text, that the model must at least take. Default 0:
  // any model will do.
  min_n_ctx?: number | null;
  // True: if the request is refused with `model_not_found`, the frame has `described`.
  // Default false.
  describe?: boolean | null;
  // Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
  // its own id refuses it. Default: none.
  via?: string[] | null;
  // The conversation, oldest first.
  messages: ChatMessage[];
  // 0 to 2; 0 always takes the most likely token. Default 1.0.
  temperature?: number | null;
  // Above 0, up to 1: keep the most likely tokens of this total probability. Default
  // 0.95.
  top_p?: number | null;
  // Keep this many of the most likely tokens; 0 keeps all. Default 64.
  top_k?: number | null;
  // Longest answer in tokens. Default 1000.
  max_tokens?: number | null;
  // False: send only the last frame, with the whole answer. Default true.
  stream?: boolean | null;
  // 70, 140, 280, 560 or 1120; checked, but without effect on text.
  image_token_budget?: number | null;
  // GBNF grammar that the answer must follow; empty for none.
  grammar?: string;
  // Up to 16 strings of 1 to 256 bytes that end the answer; they are left out of it.
  stop?: string[] | null;
  // Seed of the sampler, 0 to 4294967294; if omitted, a random one, reported in
  // `done`.
  seed?: number | null;
  // True: send `status` frames with the position in the queue and the progress of the
  // prompt.
  progress?: boolean | null;
}

// One turn of a v1 conversation.
export interface ChatMessage {
  role: "assistant" | "system" | "user";
  content: string;
}

// A v2 generation request, as received.
export interface BlocksRequest {
  // Echoed on every frame of the answer.
  id?: string;
  // 1 to 128 characters: the name or an alias of the backend that must answer. Default:
  // the first that can do what is asked.
  model?: string | null;
  // 1 to 128 printable characters: who is asking. Only for users whom the daemon's
  // configuration names as gateways.
  principal?: string | null;
  // True: refuse the request if it has fields that are not known here. Default false:
  // they are ignored.
  strict?: boolean | null;
  // 0 to 2,592,000: seconds without a request after which a model that is loaded on demand
  // may be unloaded, at most as many as configured; 0 for as many. Default: as configured.
  keep_alive_s?: number | null;
  // Tokens of one request, or of one text, that the model must at least take. Default 0:
  // any model will do.
  min_n_ctx?: number | null;
  // True: if the request is refused with `model_not_found`, the frame has `described`.
  // Default false.
  describe?: boolean | null;
  // Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
  // its own id refuses it. Default: none.
  via?: string[] | null;
  // 0 to 2; 0 always takes the most likely token. Default: the model's, else 1.0.
  temperature?: number | null;
  // Above 0, up to 1: keep the most likely tokens of this total probability. Default:
  // the model's, else 0.95.
  top_p?: number | null;
  // Keep this many of the most likely tokens; 0 keeps all. Default: the model's, else
  // 64.
  top_k?: number | null;
  // 0 to 1: drop tokens less probable than this fraction of the most likely one. Default:
  // the model's, else 0.
  min_p?: number | null;
  // Above 0, up to 2: divides the score of recent tokens. Default 1.
  repeat_penalty?: number | null;
  // -2 to 2: subtracted once from the score of each recent token. Default 0.
  presence_penalty?: number | null;
  // -2 to 2: subtracted from the score of a recent token per occurrence. Default 0.
  frequency_penalty?: number | null;
  // Maps token ids, in decimal, to a number added to their score: -100 to 100.
  logit_bias?: Record<string, number> | null;
  // Seed of the sampler, 0 to 4294967294; if omitted, a random one, reported in
  // `done`.
  seed?: number | null;
  // Longest answer in tokens. Default 1000.
  max_tokens?: number | null;
  // Tokens before which the model cannot end its turn. Default 0.
  min_tokens?: number | null;
  // Up to 16 strings of 1 to 256 bytes that end the answer; they are left out of it.
  stop?: string[] | null;
  // Up to 64 tokens that end the answer; they are left out of it.
  stop_token_ids?: number[] | null;
  // 1 to 20: report the log probability of each token and of this many alternatives.
  logprobs?: number | null;
  // True: tell the ids of the tokens of the answer with its frames. Default false.
  token_ids?: boolean | null;
  // The structure that the text of the answer must have.
  response_format?: ResponseFormat | null;
  // `auto`, `required`, `none`, or the one tool to call. Default `auto`.
  tool_choice?: string | NamedTool | null;
  // True: ask for a reasoning trace.
  thinking?: boolean | null;
  // False: send each run of text or thinking as one whole frame. Default true.
  stream?: boolean | null;
  // -10 to 10: orders a caller's own waiting requests, higher first. Default 0.
  priority?: number | null;
  // Milliseconds, at least 1, for waiting and running together.
  deadline_ms?: number | null;
  // `auto`, `off` or `discard`: use of cached prefixes. Default `auto`.
  cache?: string | null;
  // True: process the prompt and generate nothing.
  prefill_only?: boolean | null;
  // Language of speech to transcribe: a code such as `de`, or `auto` to detect it.
  // Default `auto`.
  language?: string | null;
  // True: transcribe speech into English, whatever its language. Default false.
  translate?: boolean | null;
  // Of a transcription: whether a text block is a `segment` or a `word`. Default
  // `segment`.
  timestamps?: string | null;
  // True: transcribe speech, and tell the log probability of each token. Default false.
  speech_logprobs?: boolean | null;
  // True: send `status` frames with the position in the queue and the progress of the
  // prompt.
  progress?: boolean | null;
  // The conversation, oldest first; required unless `input_tokens` is given.
  messages?: Message[];
  // In place of `messages`: 1 to 1,048,576 ids of the model's own tokens, the whole
  // prompt. Nothing is added to it.
  input_tokens?: number[] | null;
  // Media that blocks refer to; ids are unique.
  attachments?: (ImageAttachment | AudioAttachment | VideoAttachment)[];
  // Tools that the model may call; names are unique.
  tools?: Tool[];
}

// The structure that the text of the answer must have.
export interface ResponseFormat {
  // `json_schema`, `regex`, `gbnf` or `lark`.
  type: string;
  // Any JSON value.
  schema?: unknown;
  pattern?: string | null;
  grammar?: string | null;
}

// A `tool_choice` that names one tool.
export interface NamedTool {
  name: string;
}

// One turn of a conversation.
export interface Message {
  role: "assistant" | "system" | "user";
  content: (TextBlock | ImageBlock | AudioBlock | VideoBlock | ToolUseBlock | ToolResultBlock)[];
}

// Text; may be empty.
export interface TextBlock {
  type: "text";
  text: string;
}

// An image of the attachments table.
export interface ImageBlock {
  type: "image";
  attachment_id: string;
}

// A recording of the attachments table.
export interface AudioBlock {
  type: "audio";
  attachment_id: string;
}

// A video of the attachments table.
export interface VideoBlock {
  type: "video";
  attachment_id: string;
}

// A call that the assistant made in an earlier turn.
export interface ToolUseBlock {
  type: "tool_use";
  tool_call_id: string;
  name: string;
  // Any JSON value.
  input: unknown;
}

// The result of a tool call; may be empty.
export interface ToolResultBlock {
  type: "tool_result";
  tool_call_id: string;
  content: (TextBlock | ImageBlock | AudioBlock | VideoBlock | ToolUseBlock | ToolResultBlock)[];
}

// An image, decoded by the client to RGB pixels.
export interface ImageAttachment {
  kind: "image";
  id: string;
  width: number;
  height: number;
  // Base64 of `width * height * 3` RGB octets.
  bytes?: string | null;
  // Instead of `bytes`: index, from 0, of a file descriptor sent with the line; a sealed
  // memfd with the octets.
  fd?: number | null;
}

// A recording, decoded by the client to samples.
export interface AudioAttachment {
  kind: "audio";
  id: string;
  // Samples per second.
  sample_rate: number;
  // Base64 of little-endian 32-bit floats, one channel.
  bytes?: string | null;
  // Instead of `bytes`: index, from 0, of a file descriptor sent with the line; a sealed
  // memfd with the floats.
  fd?: number | null;
  // True: more samples follow in `append` lines; `bytes` and `fd` may be omitted.
  open?: boolean;
}

// Reserved.
export interface VideoAttachment {
  kind: "video";
  id: string;
  bytes: string;
}

// A function that the model may call.
export interface Tool {
  name: string;
  description: string;
  // Any JSON value.
  input_schema: unknown;
}

// Texts to turn into vectors: exactly one of `input` and `tokens`.
export interface EmbedRequest {
  // Echoed on the answer.
  id?: string;
  // 1 to 128 characters: the name or an alias of the backend that must answer. Default:
  // the first that can do what is asked.
  model?: string | null;
  // 1 to 128 printable characters: who is asking. Only for users whom the daemon's
  // configuration names as gateways.
  principal?: string | null;
  // True: refuse the request if it has fields that are not known here. Default false:
  // they are ignored.
  strict?: boolean | null;
  // 0 to 2,592,000: seconds without a request after which a model that is loaded on demand
  // may be unloaded, at most as many as configured; 0 for as many. Default: as configured.
  keep_alive_s?: number | null;
  // Tokens of one request, or of one text, that the model must at least take. Default 0:
  // any model will do.
  min_n_ctx?: number | null;
  // True: if the request is refused with `model_not_found`, the frame has `described`.
  // Default false.
  describe?: boolean | null;
  // Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
  // its own id refuses it. Default: none.
  via?: string[] | null;
  // 1 to 2048 texts, none empty.
  input?: string[];
  // 1 to 2048 texts as ids of the model's own tokens, none empty. The special tokens that
  // the model puts around a text are not added.
  tokens?: number[][] | null;
  // How many numbers of each vector to keep, from its beginning; default all.
  dimensions?: number | null;
  // Purpose of the vectors, for models that distinguish tasks: `retrieval_query`,
  // `retrieval_document`, `similarity`, `classification`, `clustering`,
  // `question_answering`, `fact_verification` or `code_retrieval_query`.
  task?: string | null;
}

// Documents to order by how well they answer a query.
export interface RerankRequest {
  // Echoed on the answer.
  id?: string;
  // 1 to 128 characters: the name or an alias of the backend that must answer. Default:
  // the first that can do what is asked.
  model?: string | null;
  // 1 to 128 printable characters: who is asking. Only for users whom the daemon's
  // configuration names as gateways.
  principal?: string | null;
  // True: refuse the request if it has fields that are not known here. Default false:
  // they are ignored.
  strict?: boolean | null;
  // 0 to 2,592,000: seconds without a request after which a model that is loaded on demand
  // may be unloaded, at most as many as configured; 0 for as many. Default: as configured.
  keep_alive_s?: number | null;
  // Tokens of one request, or of one text, that the model must at least take. Default 0:
  // any model will do.
  min_n_ctx?: number | null;
  // True: if the request is refused with `model_not_found`, the frame has `described`.
  // Default false.
  describe?: boolean | null;
  // Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
  // its own id refuses it. Default: none.
  via?: string[] | null;
  // The search text; not empty.
  query: string;
  // 1 to 256 texts, none empty; with the query at most 8 MiB.
  documents: string[];
  // Return only this many of the best documents; at least 1, default all.
  top_n?: number | null;
}

// A question which models the socket serves; it is answered at once, without the queue.
export interface DescribeRequest {
  type: "describe";
  // Echoed on the answer.
  id?: string;
  // 1 to 128 characters: the name or an alias of the backend that must answer. Default:
  // the first that can do what is asked.
  model?: string | null;
  // 1 to 128 printable characters: who is asking. Only for users whom the daemon's
  // configuration names as gateways.
  principal?: string | null;
  // True: refuse the request if it has fields that are not known here. Default false:
  // they are ignored.
  strict?: boolean | null;
  // 0 to 2,592,000: seconds without a request after which a model that is loaded on demand
  // may be unloaded, at most as many as configured; 0 for as many. Default: as configured.
  keep_alive_s?: number | null;
  // Tokens of one request, or of one text, that the model must at least take. Default 0:
  // any model will do.
  min_n_ctx?: number | null;
  // True: if the request is refused with `model_not_found`, the frame has `described`.
  // Default false.
  describe?: boolean | null;
  // Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
  // its own id refuses it. Default: none.
  via?: string[] | null;
}

// Cancels the requests with this id that run or wait on the same connection.
export interface CancelLine {
  type?: "cancel";
  id: string;
  // That of the requests, if they have one: those of others with this id go on.
  principal?: string | null;
}

// More audio for a request that waits or runs.
export interface AppendLine {
  type: "append";
  // The request's id.
  id: string;
  // The request's, if it has one.
  principal?: string | null;
  // Id of an attachment that is `open`.
  attachment_id: string;
  // Base64 of little-endian 32-bit floats, one channel.
  bytes?: string | null;
  // Instead of `bytes`: as in an attachment.
  fd?: number | null;
  // True: no more audio follows.
  end?: boolean;
}

// A command from an admin client.
export interface Command {
  // `requests`, `explain`, `top`, `metrics`, `backends`, `log`, `cancel`, `load`,
  // `unload`, `drain` or `reload`.
  command: string;
  // With `cancel`: the id of the request to cancel; with `explain`: of those that are
  // meant.
  id?: string | null;
  // With `explain`: the daemon's own number of the request that is meant.
  number?: number;
  // With `cancel`: for whom the request asks; needed where it asks for a principal.
  principal?: string | null;
  // With `load` and `unload`: name of the backend whose model is meant.
  backend?: string;
}

// A part of the answer.
export interface TokenFrame {
  type: "token";
  id: string;
  content: string;
}

// The end of an answer; `content` is the whole answer, streamed or not.
export interface DoneFrame {
  type: "done";
  id: string;
  content: string;
  usage: Usage;
  stop_reason: "cancelled" | "end" | "error" | "length";
  // Its configured name; empty if the request was cancelled before one was chosen.
  backend: string;
  // The sampler's.
  seed?: number;
  timing?: Timing;
  // With a structure or a call that was asked for: whether it is closed.
  structure_complete?: boolean;
  // Where nothing of the prompt was in the cache: why.
  cache_miss?: "lost" | "no_prefix" | "no_room" | "off" | "state" | "window";
}

// Token counts of a v1 generation.
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  // Tokens of the prompt that were in the cache.
  cached_tokens?: number;
  // Tokens drafted by speculative decoding, if any were.
  drafted_tokens?: number;
  // Drafted tokens that the model accepted.
  accepted_tokens?: number;
  // Present if a remote engine counted nothing, and the numbers are estimated.
  is_estimate?: true;
}

// Times of a request; the `_ns` fields exceed the 53 bits of a double.
export interface Timing {
  // From arrival to the start of the run.
  queued_ms: number;
  // From the start to the first token.
  prefill_ms: number;
  // From arrival to the first token.
  first_token_ms: number;
  // From the first token to the end.
  decode_ms: number;
  // From arrival to the end.
  total_ms: number;
  // Tokens after the first ones divided by `decode_ms`; 0 if there are none. Those that
  // came at once with the first, as a grammar may give no choice of them, are first ones.
  tokens_per_second: number;
  arrived_ns: number;
  started_ns: number;
  finished_ns: number;
  // Milliseconds for which it was paused for other users, if it was; the other times
  // include them.
  paused_ms?: number;
}

// A part of the answer, of one type.
export interface BlockFrame {
  type: "frame";
  id: string;
  block: TextDelta | ThinkingDelta | ToolCall;
  // With text, if requested: the tokens of the text.
  logprobs?: Logprob[];
  // If requested: the ids of the tokens of this part, of those that begin in it, and of the
  // markers before it.
  token_ids?: number[];
}

// A part of the visible answer.
export interface TextDelta {
  type: "text";
  delta: string;
  // In a transcription: start of the text, from the beginning of the audio.
  start_ms?: number;
  end_ms?: number;
  // In a transcription: probability that nobody speaks there, 0 to 1.
  no_speech?: number;
}

// A part of the reasoning trace.
export interface ThinkingDelta {
  type: "thinking";
  delta: string;
}

// A complete tool call.
export interface ToolCall {
  type: "tool_use";
  tool_call_id: string;
  name: string;
  // Any JSON value.
  input: unknown;
}

// The chosen token and the most likely alternatives.
export interface Logprob {
  // The token's text; parts of characters split over tokens are U+FFFD.
  token: string;
  id: number;
  // The bytes of the token's text.
  bytes: number[];
  // Natural logarithm of its probability, before any sampling option.
  logprob: number;
  top_logprobs: Alternative[];
}

// A token and its log probability.
export interface Alternative {
  // The token's text; parts of characters split over tokens are U+FFFD.
  token: string;
  id: number;
  // The bytes of the token's text.
  bytes: number[];
  // Natural logarithm of its probability, before any sampling option.
  logprob: number;
}

// The end of a v2 answer.
export interface BlocksDone {
  type: "done";
  id: string;
  usage: UsageV2;
  stop_reason: "cancelled" | "end_turn" | "error" | "max_tokens" | "stop_sequence" | "tool_use";
  // Its configured name; empty if the request was cancelled before one was chosen.
  backend: string;
  // The sampler's.
  seed?: number;
  timing?: Timing;
  // The string of `stop` that was found.
  stop_sequence?: string;
  // The token of `stop_token_ids` that was chosen.
  stop_token_id?: number;
  // If requested: the ids of the answer's tokens that no frame had: of text that was
  // withheld, and of markers.
  token_ids?: number[];
  // If ids are requested: the token that ended the answer, if one did. It is no part of
  // the answer, and not counted in `usage`.
  end_token_id?: number;
  // With `cancelled`: the reason.
  detail?: "deadline";
  // With a structure or a call that was asked for: whether it is closed.
  structure_complete?: boolean;
  // Where nothing of the prompt was in the cache: why.
  cache_miss?: "lost" | "no_prefix" | "no_room" | "off" | "state" | "window";
  warnings?: AnswerWarning[];
  // With a transcription: facts about it.
  transcription?: TranscriptionFacts;
}

// Token counts of a v2 generation.
export interface UsageV2 {
  input_tokens: number;
  output_tokens: number;
  // Tokens of the input that were in the cache.
  cached_tokens?: number;
  // Tokens drafted by speculative decoding, if any were.
  drafted_tokens?: number;
  // Drafted tokens that the model accepted.
  accepted_tokens?: number;
  // Present if a remote engine counted nothing, and the numbers are estimated.
  is_estimate?: true;
}

// A warning about the answer.
export interface AnswerWarning {
  code: "tool_call_malformed";
  // The text of the call. It was sent as text, unless `max_tokens` cut a forced call.
  raw: string;
}

// Facts about a transcription: its language, length and speed.
export interface TranscriptionFacts {
  // Code of the language.
  language: string;
  // With `auto`: probability of the detected language, 0 to 1.
  language_probability?: number;
  // Milliseconds of audio transcribed.
  audio_ms: number;
  // Computing time divided by the length of the audio.
  real_time_factor: number;
  // With an open attachment: milliseconds from receiving its end to the end of the
  // answer.
  latency_ms?: number;
}

// One vector per input, in order.
export interface EmbeddingsFrame {
  type: "embeddings";
  id: string;
  embeddings: number[][];
  // Length of every vector.
  dimensions: number;
  model: string;
  usage: EncodeUsage;
  backend: string;
}

// Token count of embeddings or scores.
export interface EncodeUsage {
  input_tokens: number;
  // Present if a remote engine counted nothing, and the number is estimated.
  is_estimate?: true;
}

// Documents by score, best first.
export interface RerankFrame {
  type: "rerank";
  id: string;
  results: RankedDocument[];
  model: string;
  usage: EncodeUsage;
  backend: string;
}

// A document's index in the request, and its score.
export interface RankedDocument {
  index: number;
  score: number;
}

// The answer to `describe`: the models that requests on this socket may ask for.
export interface ModelsFrame {
  type: "models";
  id: string;
  // In configured order, then those of the store that no request has named yet.
  models: OfferedFacts[];
  // How many further models were left out, if any.
  omitted?: number;
}

// A backend, or a model of the store, as the `capabilities` frames have it.
export interface OfferedFacts {
  // Its name.
  backend: string;
  // Further names for `model`.
  aliases: string[];
  // `ready`; `loading`; `unloaded` or `unloading`, where a request loads it; or
  // `failed`.
  state: string;
  // Present for a model of the store whose header has not been read: what it can do is not
  // known before a request names it, and the fields below say nothing of it.
  is_unread?: true;
  generate?: boolean;
  embed?: boolean;
  rerank?: boolean;
  tools?: boolean;
  thinking?: boolean;
  vision?: boolean;
  audio?: boolean;
  structure?: boolean;
  // Present if it transcribes speech.
  transcribe?: true;
  // Tokens one request may take, prompt and answer together; those of a text.
  n_ctx?: number;
  // Length of its vectors.
  n_embd?: number;
  // The model's own name.
  model?: string;
  // The model family whose prompt and call format it uses.
  dialect?: string;
}

// Progress of a request that asked for it, or whose audio is still sent.
export interface ProgressFrame {
  type: "status";
  id: string;
  status: "loading" | "partial" | "prefill" | "queued";
  // With `queued`: 1 for the next to run.
  position?: number;
  // With `loading`: the step of loading the model.
  phase?: "backoff" | "breaker_open" | "checking_local" | "kv_cache" | "mmap" | "verify";
  // With `loading`: name of the backend whose model is loaded.
  backend?: string;
  // With `prefill`: tokens of the prompt processed so far.
  processed?: number;
  // With `prefill`: tokens of the prompt.
  total?: number;
  // With `partial`: transcribed text that may still change.
  text?: string;
  // With `partial`: start of the text, from the beginning of the audio.
  start_ms?: number;
  end_ms?: number;
}

// The end of a request that failed.
export interface ErrorFrame {
  type: "error";
  id: string;
  code: ErrorCode;
  message: string;
  // With a context overflow: tokens of the prompt.
  prompt_tokens?: number;
  // With a context overflow: tokens one request may take.
  n_ctx?: number;
  // With a context overflow: tokens to remove.
  tokens_over?: number;
  // With a context overflow: true if the prompt was not counted to its end.
  at_least?: boolean;
  // With `queue_full`, unless connections or descriptors are too many: requests that
  // wait.
  queue_depth?: number;
  // With `queue_full` of the request queue, if it can be estimated: milliseconds until a
  // request may be accepted.
  retry_after_ms?: number;
  // With `model_not_found`: names of models that can do what is asked, 32 at most.
  models?: string[];
  // With `model_not_found`, where the request asks for it: facts about these models, of
  // which each is one entry whatever names it has.
  described?: OfferedFacts[];
}

// The `code` of an error frame.
export type ErrorCode = "attachment_unsupported" | "backend_unavailable" | "cancelled" | "deadline_exceeded" | "embed_unsupported" | "frame_too_large" | "internal" | "invalid_request" | "model_not_found" | "permission_denied" | "queue_full" | "rerank_unsupported";

// The lifecycle state of the daemon.
export interface LifecycleFrame {
  id: "admin";
  type: "status";
  status: "draining" | "loading_model" | "ready" | "restarting" | "starting";
  // The step on the way to `ready`.
  phase?: "backoff" | "breaker_open" | "checking_local" | "kv_cache" | "mmap" | "verify";
  // Configured name of the backend concerned.
  backend?: string;
  // The model file, or a word in brackets if there is no file.
  path?: string;
  // With `kv_cache`: tokens of one request's context.
  n_ctx?: number;
  // With `restarting`: why the worker exited.
  reason?: string;
  // With `backoff` and `breaker_open`: seconds until the next start.
  retry_in_s?: number;
}

// The capabilities of one backend; sent before `ready` and again on connect.
export interface CapabilitiesFrame {
  id: "admin";
  type: "status";
  status: "capabilities";
  backend: string;
  v2: boolean;
  vision: boolean;
  audio: boolean;
  tools: boolean;
  thinking: boolean;
  embed: boolean;
  generate: boolean;
  rerank: boolean;
  accelerator: string;
  gpu_layers: number;
  // Names of the accelerators.
  device_name?: string;
  // Bytes of memory of the accelerators.
  vram_total_bytes?: number;
  // Bytes of it that were free when the model had been loaded.
  vram_free_bytes?: number;
  // The variant of the library's CPU code in use.
  cpu_variant?: string;
  // Version of the protocol: 1 for this family of NDJSON sockets.
  wire_version: number;
  // Tokens one request may take, prompt and answer together.
  n_ctx?: number;
  // Requests that can run at once.
  n_slots?: number;
  // Data type of the keys in the KV cache.
  cache_type_k?: string;
  // Data type of the values in the KV cache.
  cache_type_v?: string;
  // The model's own name.
  model?: string;
  // With `model = "auto"`: which model of the ladder was chosen at the start, and why.
  model_choice?: string;
  // Present if another engine answers, perhaps on another machine.
  remote?: true;
  // Present if it gets only requests that name it.
  by_name_only?: true;
  // Whether it can constrain an answer to a grammar, a schema or a tool call.
  structure: boolean;
  // Present if it transcribes speech.
  transcribe?: true;
  // Samples per second that audio must have.
  audio_sample_rate?: number;
  // The model family whose prompt and call format it uses.
  dialect?: string;
  // Further names of the backend, for the `model` of requests.
  aliases?: string[];
  // `ready`; `loading`, where requests wait for it; `unloaded` or `unloading`, where
  // a request loads it; or `failed`, where they are refused for a while. On connect it is the
  // present state.
  state?: string;
  // Present if its requests or tokens are bounded: what is left. On connect it is the present
  // state.
  budget?: BudgetLeft;
  // Present for a model of the store whose header has not been read: what it can do is not
  // known before a request names it, and the fields above say nothing of it.
  is_unread?: true;
  // Version of the daemon.
  daemon_version: string;
}

// What is left of a backend's budget.
export interface BudgetLeft {
  // Requests that may still begin in this minute, if they are bounded.
  requests_left?: number;
  // Tokens that may still be used today, in UTC, if they are bounded.
  tokens_left?: number;
}

// The answer to one command; `ok` says whether it was carried out.
export interface Reply {
  id: "admin";
  type: "reply";
  // The command, as received; empty if the line could not be decoded.
  command: string;
  ok: boolean;
  // With `ok` false: the reason.
  error?: string;
  // With `ok` false, of `load` and `unload`: the kind of the reason, as the codes of
  // error frames have it.
  code?: ErrorCode;
  requests?: RequestInfo[];
  // With `explain`: those that wait and run, then those that have ended, the newest
  // first.
  explained?: ExplainedRequest[];
  // With `explain`: when the oldest of the ended ones that are kept was received, in
  // nanoseconds since 1970.
  since_ns?: number;
  // With `top`: the daemon as a whole.
  overview?: Overview;
  // With `requests` and `explain`: number of requests that did not fit the list.
  omitted?: number;
  backends?: BackendInfo[];
  // With `metrics`: the metrics in Prometheus' text format.
  text?: string;
  // With `log`: the newest lines of the log, each an object of JSON, the oldest first.
  lines?: string[];
  // With `cancel`: number of requests that were cancelled.
  cancelled?: number;
  // With `reload`: changed settings that are now in force.
  applied?: string[];
  // With `reload`: changed settings that need a restart.
  needs_restart?: string[];
}

// A waiting or running request.
export interface RequestInfo {
  // The request's id; a long one is cut off and ends with an ellipsis.
  id: string;
  // File name of the socket that received it.
  socket: string;
  // The caller's user; -1 if the kernel did not report it.
  uid: number;
  pid: number;
  // For whom a gateway's request asks.
  principal?: string;
  phase: "queued" | "running";
  // Milliseconds since it arrived.
  age_ms: number;
  backend?: string;
  // With `queued`: 1 for the next to run; unknown while an earlier request of the same
  // connection waits.
  position?: number;
  // Tokens generated so far.
  output_tokens: number;
}

// The life of a request that waits, runs or has ended.
// 
// What has not happened is missing. Times are of the daemon: they end when an answer is
// handed to the kernel.
export interface ExplainedRequest {
  // The daemon's own number of the request; counts from 1 at its start.
  number: number;
  // The request's id; a long one is cut off and ends with an ellipsis.
  id: string;
  // The caller's user; -1 if the kernel did not report it.
  uid: number;
  pid: number;
  // For whom a gateway's request asks.
  principal?: string;
  // File name of the socket that received it.
  socket: string;
  // The name that the request asked for.
  model?: string;
  backend?: string;
  phase: "ended" | "queued" | "running";
  // When its line was read, in nanoseconds since 1970.
  received_ns: number;
  // Length of its line.
  line_bytes: number;
  // With `ended`: the stop reason, an error code or `abandoned`.
  outcome?: string;
  // Milliseconds since it was received; of one that has ended, until then.
  total_ms: number;
  // Milliseconds until it had a place in the queue: behind others of its connection, and
  // until its line was decoded.
  reading_ms?: number;
  // Milliseconds for which it waited until its model was loaded.
  loading_ms?: number;
  // Milliseconds until its prompt was rendered and counted, with the wait for others'.
  preparing_ms?: number;
  // Tokens of the prompt, or of all texts.
  input_tokens?: number;
  // Only as `true`: these tokens are estimated.
  is_estimate?: boolean;
  // How many of these were in the prompt cache.
  cached_tokens?: number;
  // Why none was.
  cache_miss?: "lost" | "no_prefix" | "no_room" | "off" | "state" | "window";
  // Milliseconds until it ran, from when it was prepared.
  waiting_ms?: number;
  // Requests that waited already, if it could not run at once.
  n_waiting?: number;
  // Whose requests ran then, or when it was paused; for operators alone.
  waited_for?: PermitHolder[];
  // Its positions in the queue, one after the other; where they were computed.
  positions?: number[];
  // Times that others had its place.
  pauses?: number;
  paused_ms?: number;
  // Milliseconds from when it ran until it gave its place back, with pauses.
  run_ms?: number;
  // Milliseconds from when it ran to its first token.
  prefill_ms?: number;
  // Milliseconds from when it was received to its first token.
  first_token_ms?: number;
  // Milliseconds from its first token until it gave its place back, with pauses.
  decode_ms?: number;
  output_tokens?: number;
  // Of the tokens after the first one, and those that came at once with it.
  tokens_per_second?: number;
  // Milliseconds of audio that it has.
  audio_ms?: number;
  // Times that the client did not read, and its answer waited for that.
  stalls?: number;
  stalled_ms?: number;
}

// A user whose requests ran while another request waited.
export interface PermitHolder {
  // The user that limits count; -1 for users whom the kernel did not report.
  uid: number;
  // For whom a gateway's requests ask.
  principal?: string;
  // Its requests that ran.
  requests: number;
}

// The state of the daemon, and what it did lately: in the last `window_s` seconds.
export interface Overview {
  version: string;
  // As in status frames: `ready`, `restarting`, `draining` and so on.
  status: string;
  // Nanoseconds since 1970.
  at_ns: number;
  uptime_s: number;
  pid: number;
  // Memory of the daemon's own process.
  resident_bytes?: number;
  // Requests that hold a permit.
  running: number;
  // Permits.
  places: number;
  waiting: number;
  paused: number;
  // Prompt tokens of those that wait, as far as they are counted.
  waiting_tokens: number;
  connections: number;
  // At most 60; less if the daemon keeps no older request.
  window_s: number;
  ended: number;
  // How many of these ended with an error.
  failed: number;
  input_tokens: number;
  // How many of the input tokens were in the prompt cache.
  cached_tokens: number;
  // Tokens of answers, of requests that run or have ended.
  tokens_per_second: number;
  // From when they were received to the first token.
  first_token_ms?: Percentiles;
  // From when they were received until they ran.
  waiting_ms?: Percentiles;
  // From when they were received to the end, for those that did not fail.
  total_ms?: Percentiles;
  memory_budget_bytes: number;
  memory_needed_bytes: number;
  // What the machine and the daemon's control groups still have.
  memory_available_bytes: number;
  // Those with the largest shares first.
  users: UserLoad[];
  omitted_users?: number;
  models: ModelLoad[];
  omitted_models?: number;
}

// Times of requests that ended lately, in milliseconds; each is one that occurred.
export interface Percentiles {
  // Requests that have such a time.
  n: number;
  p50: number;
  p95: number;
  p99: number;
}

// What one user's requests take.
export interface UserLoad {
  // The user that limits count; -1 for users whom the kernel did not report.
  uid: number;
  // For whom a gateway's requests ask.
  principal?: string;
  // Requests that have begun, paused ones among them.
  running: number;
  waiting: number;
  // Of the time that all requests have run lately; from 0 to 1.
  share: number;
  // Requests that ended lately.
  ended: number;
  // Tokens of answers lately.
  tokens_per_second: number;
}

// What one backend does, and what it takes.
export interface ModelLoad {
  name: string;
  // `unloaded`, `loading`, `ready`, `unloading` or `failed`.
  state: string;
  // The process id of its worker, if it has one.
  pid?: number;
  // Memory of that process in the machine's memory, with pages of the model's file.
  resident_bytes?: number;
  // Host memory of saved prompts; unknown until the prompt cache was used.
  cache_bytes?: number;
  // Requests that can run at once.
  slots?: number;
  running: number;
  waiting: number;
  // Tokens of one request, or of one text.
  n_ctx?: number;
  // Only as `true`: another engine answers, perhaps on another machine.
  remote?: boolean;
  // Tokens of answers lately.
  tokens_per_second: number;
}

// A configured backend.
export interface BackendInfo {
  name: string;
  ready: boolean;
  // Further names for requests.
  aliases?: string[];
  // `unloaded`, `loading`, `ready`, `unloading` or `failed`.
  state?: string;
  // Reason why it will not be ready soon.
  unavailable?: string;
  // What is left of its budget, if it has one.
  budget?: BudgetLeft;
  capabilities: Record<string, unknown>;
}

// All that a daemon of this version sends.
export type AnyFrame =
  | TokenFrame
  | DoneFrame
  | BlockFrame
  | BlocksDone
  | EmbeddingsFrame
  | RerankFrame
  | ModelsFrame
  | ProgressFrame
  | ErrorFrame
  | LifecycleFrame
  | CapabilitiesFrame
  | Reply;
