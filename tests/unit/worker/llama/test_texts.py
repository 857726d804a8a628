from inferd.backend.job import EmbedJob
from inferd.worker.llama.texts import PreparedTexts


def test_the_tokens_of_all_texts_are_counted():
    job = EmbedJob(texts=["a", "b"], dimensions=None, task=None)
    assert PreparedTexts(job, [[1, 2], [3]]).prompt_tokens == 3
